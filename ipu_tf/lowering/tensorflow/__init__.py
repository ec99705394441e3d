"""TensorFlow's side of lowering: tracing to StableHLO, markers, values, graphs and sessions.

The files `tf_private`, `tf_values`, `tf_patches` and `tf1_private` hold all use of TensorFlow's private API.
Start with `trace`.
"""
