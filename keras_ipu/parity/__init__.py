"""Compares a split training run with plain Keras: the parts of `debug.check_parity`."""
