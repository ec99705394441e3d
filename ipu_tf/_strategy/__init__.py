"""What `IPUStrategy` does: `strategy.run`, and hooks by which other packages take part in its scope.

Enters: a `tf.function` with its arguments. Leaves: its results, computed on the device.
"""
