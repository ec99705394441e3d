"""Lowers TensorFlow functions (via StableHLO) and JAX steps to device programs."""
