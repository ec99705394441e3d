"""The Keras layers, losses and optimizers of Graphcore's TensorFlow addons, for Keras 2.

Enters: `ipu_tensorflow_addons.keras`, where `TF_USE_LEGACY_KERAS` is set. Leaves: layers and optimizers of `tf_keras`.
"""

from keras_ipu.keras_2.addons import layers, optimizers

__all__ = ["layers", "optimizers"]
