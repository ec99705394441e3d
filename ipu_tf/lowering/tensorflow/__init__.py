"""TensorFlow's side of lowering: tracing to StableHLO, markers, values, graphs and sessions.

The files `tf_private`, `tf_graphs`, `tf_values`, `tf1_private` and `tf_*patches` hold all use of its private API.
Start with `trace`.
Enters: a TensorFlow function or graph. Leaves: a StableHLO module, and the captures of its arguments.
"""
