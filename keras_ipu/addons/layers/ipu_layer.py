"""`IPULayer`: base class of the addons' layers."""

from __future__ import annotations

from typing import Any

import keras


class IPULayer(keras.layers.Layer):
    """Base class of layers that refuse arguments of Keras's layer which Graphcore's layer lacks."""

    def _check_unsupported(self, arg: Any, arg_name: str, method: str = "__init__") -> None:
        if arg is not None and arg is not False:
            name = type(self).__name__
            raise NotImplementedError(
                f"ipu_tensorflow_addons.keras.layers.{name} does not support {method} argument {arg_name}. It is "
                f"included for API consistency with keras.{name}."
            )


def tensorflow_ops(layer: keras.layers.Layer, module: str) -> Any:
    """The module `ipu_tf.ops.<module>`, whose ops are TensorFlow's.

    Raises:
        NotImplementedError: if Keras runs on another backend.
    """
    import importlib

    if keras.backend.backend() != "tensorflow":
        raise NotImplementedError(
            f"{type(layer).__name__} computes with TensorFlow. Received: Keras's {keras.backend.backend()} backend. "
            "Set KERAS_BACKEND=tensorflow."
        )
    return importlib.import_module(f"ipu_tf.ops.{module}")
