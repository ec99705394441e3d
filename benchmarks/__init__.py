"""Benchmarks against stock Keras and JAX: `python -m benchmarks`."""
