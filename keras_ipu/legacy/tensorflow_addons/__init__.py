"""Stand-in for TensorFlow Addons where it is not installed: optimizers, a metric, a layer.

Of optimizers those with decoupled weight decay, the F1 score, weight normalization.

TensorFlow Addons ended with TensorFlow 2.15 and cannot be installed beside this one.
"""

from keras_ipu.legacy.tensorflow_addons import layers, metrics, optimizers

__all__ = ["layers", "metrics", "optimizers"]
