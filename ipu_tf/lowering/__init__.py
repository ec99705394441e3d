"""Lowers TensorFlow functions (via StableHLO) and JAX steps to device programs."""

import tensorflow  # noqa: F401 - first: its import patches sessions, by modules of this folder that must be whole then
