"""Stand-in for TensorFlow Addons where it is not installed: its optimizers with decoupled weight decay.

TensorFlow Addons ended with TensorFlow 2.15 and cannot be installed beside this one.
"""

from keras_ipu.legacy.tensorflow_addons import optimizers

__all__ = ["optimizers"]
