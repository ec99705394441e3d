"""Compatibility module for `keras.layers.core`: Keras's layers, `TFOpLambda` and `SlicingOpLambda`."""

from __future__ import annotations

from typing import Any

import keras

_WHY = (
    "Keras 3 makes no layer of a TensorFlow op that is called with a KerasTensor. Use keras.ops, or put the op into a "
    "keras.layers.Lambda or a layer of your own."
)


class TFOpLambda(keras.layers.Layer):
    """Keras 2's layer of a TensorFlow op, for `isinstance` checks: no layer of Keras 3 is one.

    Raises:
        TypeError: where a program makes one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(f"{type(self).__name__}: {_WHY}")


class SlicingOpLambda(TFOpLambda):
    """Keras 2's layer of a slice, for `isinstance` checks: no layer of Keras 3 is one."""


def __getattr__(name: str) -> Any:
    try:
        return getattr(keras.layers, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
