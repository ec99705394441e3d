"""Stand-in for TensorFlow Addons where a program is for Keras 2: optimizers with weight decay, F1 score.

Enters: `tensorflow_addons`, where `TF_USE_LEGACY_KERAS` is set. Leaves: optimizers, a metric of `tf_keras`.
"""

from keras_ipu.keras_2.tensorflow_addons import metrics, optimizers

__all__ = ["metrics", "optimizers"]
