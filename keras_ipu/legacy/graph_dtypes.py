"""Layers in TensorFlow 1's graphs compute in the dtype of their first input, as Keras 2's did there.

A program that sets another dtype policy than float32, Keras's default, gets that one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._patches.installation import replace_in
from keras_ipu.stock import patches as keras_patches

#: An attribute of layers that were given no dtype and have not been called.
_OPEN = "_ipu_takes_dtype_of_input"
_DEFAULT = "float32"


def install_graph_dtypes() -> None:
    """Patches Keras's layers to take the dtype of their first input in graphs. Calling it again changes nothing."""
    replace_in(keras.layers.Layer, "__init__", _init)
    keras_patches.patch_method(keras.layers.Layer, "__call__", _in_graph, _call)


def _in_graph(_: Any) -> bool:
    return not tf.compat.v1.executing_eagerly_outside_functions()


def _init(stock: Callable[..., None]) -> Callable[..., None]:
    # Keras reads the names of the arguments, to know what to write into a saved model.
    def init(self: Any, *, dtype: Any = None, **kwargs: Any) -> None:
        stock(self, dtype=dtype, **kwargs)
        if dtype is None and keras.config.dtype_policy().name == _DEFAULT and _in_graph(self):
            vars(self)[_OPEN] = True

    return init


def _call(stock: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
    if vars(layer).pop(_OPEN, False) and not layer.weights:
        dtype = _first_dtype([*args, *kwargs.values()])
        if dtype is not None and dtype != layer.compute_dtype:
            layer.dtype_policy = keras.dtype_policies.DTypePolicy(dtype)
    return stock(layer, *args, **kwargs)


def _first_dtype(values: Any) -> str | None:
    """Returns the name of the dtype of the first floating-point tensor in a structure; None if there is none."""
    for value in keras.tree.flatten(values):
        dtype = getattr(value, "dtype", None)
        if dtype is not None and tf.as_dtype(dtype).is_floating:
            return tf.as_dtype(dtype).base_dtype.name
    return None
