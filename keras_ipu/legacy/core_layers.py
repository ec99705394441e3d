"""`keras.layers.core`: Keras's layers, and the two that Keras 2 made of TensorFlow ops by itself."""

from __future__ import annotations

from typing import Any

import keras

_WHY = (
    "Keras 3 makes no layer of a TensorFlow op that is called with a KerasTensor. Use keras.ops, or put the op into a "
    "keras.layers.Lambda or a layer of your own."
)


class TFOpLambda(keras.layers.Layer):
    """What Keras 2 made of a TensorFlow op. No layer of Keras 3 is one: programs only ask for that.

    Raises:
        TypeError: where a program makes one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(f"{type(self).__name__}: {_WHY}")


class SlicingOpLambda(TFOpLambda):
    """What Keras 2 made of a slice. No layer of Keras 3 is one: programs only ask for that."""


def __getattr__(name: str) -> Any:
    try:
        return getattr(keras.layers, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
