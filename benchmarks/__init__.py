"""Benchmarks against stock Keras and JAX: `python -m benchmarks`."""

import os

# What is measured does not depend on programs that were compiled before.
os.environ.setdefault("IPU_TF_CACHE", "0")
