"""Compares a split training run with plain Keras: the parts of `debug.check_parity`.

Enters: a compiled model and batches. Leaves: a `ParityReport`. Start with `runs`.
"""
