"""`keras.Input(32)` for `keras.Input((32,))`, as the Keras takes it that IPU programs were written for."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from keras_ipu import keras_private
from keras_ipu.ownership import on_device


def install_input_shapes() -> None:
    """Lets a whole number be the shape of an `Input`: within an `IPUStrategy`'s scope, and anywhere in programs that
    import Keras 2's modules. Calling it again changes nothing.
    """
    keras_private.hook_input_shapes(_shape)


def _shape(shape: Any) -> Any:
    if not isinstance(shape, int):
        return shape
    keras_2 = "keras_ipu.legacy" in sys.modules
    return (shape,) if keras_2 or on_device(tf.distribute.get_strategy()) else shape
