"""Patches `keras.Input` to accept an integer shape, as Keras 2 did."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from keras_ipu.stock import patches as keras_patches
from keras_ipu.stock.ownership import on_device


def install_input_shapes() -> None:
    """Patches `keras.Input` to accept an integer shape.

    It applies within an `IPUStrategy`'s scope, and anywhere in programs that import Keras 2's modules. Calling it again
    changes nothing.
    """
    keras_patches.patch_input_shapes(_shape, _made)


def _shape(shape: Any) -> Any:
    if not isinstance(shape, int):
        return shape
    keras_2 = "keras_ipu.legacy" in sys.modules
    return (shape,) if keras_2 or on_device(tf.distribute.get_strategy()) else shape


def _made(layer: Any) -> None:
    """Names an `Input`'s tensor after its layer, as Keras 2 did."""
    keras_2 = sys.modules.get("keras_ipu.legacy.keras_2")
    if keras_2 is not None:
        keras_2.name_for(layer, layer.output)
