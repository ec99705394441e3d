"""Patches `keras.Input` to accept an integer shape, as Keras 2 did."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import tensorflow as tf

from ipu_tf._patches.installation import is_installed
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
    return (shape,) if _keras_2() is not None or on_device(tf.distribute.get_strategy()) else shape


def _made(layer: Any) -> None:
    """Names an `Input`'s tensor after its layer, as Keras 2 did."""
    keras_2 = _keras_2()
    if keras_2 is not None:
        keras_2.name_for(layer, layer.output)


def _keras_2() -> ModuleType | None:
    """Returns the module that makes Keras behave as Keras 2, where a program is one for Keras 2."""
    installed = is_installed("keras.src.backend.common.keras_tensor:KerasTensor.get_shape")
    return sys.modules["keras_ipu.legacy.keras_2"] if installed else None
