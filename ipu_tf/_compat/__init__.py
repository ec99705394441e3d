"""Compatibility: Graphcore's module names, the launcher, and names of TensorFlow 1 and Keras 2.

    tensorflow.python.ipu.X, keras.ipu, popdist, ...  --aliases-->  ipu_tf.X, keras_ipu, ipu_tf.popdist, ...

Enters: imports under Graphcore's names, and scripts (`python -m ipu_tf SCRIPT`). Leaves: this project's modules under
those names. Nothing here is active in a script that only adds the three lines.
Start with `aliases` (import hook), `alias_names` (the table), `launcher` (runs a script).
"""
