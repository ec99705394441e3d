"""The Keras layers, losses and optimizers of Graphcore's TensorFlow addons.

`ipu_tensorflow_addons.keras`, and `tensorflow.python.ipu.keras` up to SDK 2.5, lead here.
"""

from keras_ipu.addons import layers, losses, optimizers

__all__ = ["layers", "losses", "optimizers"]
