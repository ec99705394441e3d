"""Stand-in for TensorFlow Addons where a program is for Keras 2: its optimizers with decoupled weight decay.

Enters: `tensorflow_addons`, where `TF_USE_LEGACY_KERAS` is set. Leaves: optimizers of `tf_keras.optimizers.legacy`.
"""

from keras_ipu.keras_2.tensorflow_addons import optimizers

__all__ = ["optimizers"]
