"""Implementation of `IPUStrategy.run` and hooks into its scope.

Enters: a `tf.function` with its arguments. Leaves: its results, computed on the device.
Start with `run.py`.
"""
