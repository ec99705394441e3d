"""Keras on the emulated IPU: models made in an `IPUStrategy`'s scope train, evaluate and predict on the device.

Nothing here has to be imported by a user: entering the scope does. Models made outside a scope stay stock Keras.
"""

from ipu_tf.strategy_hooks import add_scope_hook
from keras_ipu.scope import keras_scope

__ipu__built__ = "1"

__all__ = ["keras_scope"]

add_scope_hook(keras_scope)
