"""Compatibility module for `keras.engine`, with Graphcore's extension classes and delegates."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import Input, InputSpec, KerasTensor, Model, Sequential
from keras.layers import InputLayer, Layer

from ipu_tf.ipu_strategy import IPUStrategyV1
from keras_ipu.stock.graphs import Functional

__all__ = [
    "Functional",
    "Input",
    "InputLayer",
    "InputSpec",
    "KerasExtension",
    "KerasTensor",
    "Layer",
    "Model",
    "Sequential",
    "base_layer",
    "base_layer_utils",
    "enable_v2_dtype_behavior",
    "extension_delegate",
    "functional",
    "input_layer",
    "input_spec",
    "keras_tensor",
    "sequential",
    "topology",
    "training",
]

#: Keras 2 has these as modules of their own.
base_layer = base_layer_utils = functional = input_layer = sequential = training = sys.modules[__name__]
input_spec = keras_tensor = topology = sys.modules[__name__]

_DELEGATE = "__extension_delegate"


def enable_v2_dtype_behavior() -> None:
    """Makes layers cast their inputs, which Keras 3's do."""


class KerasExtension:
    """The base of extensions of Keras classes.

    For a method `m` marked with `extension_delegate`, an extension may have `_m_delegate`, which takes over where
    `_m_supported` gives True for the same arguments.
    """


def extension_delegate(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a method that an extension may replace within an `IPUStrategy`'s scope.

    Called with `__extension_delegate=False`, the method itself runs.
    """

    @functools.wraps(method)
    def delegated(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.pop(_DELEGATE, True):
            return method(self, *args, **kwargs)
        extension = _extension_of(self if isinstance(self, type) else type(self))
        delegate = _part(extension, f"_{method.__name__}_delegate", self)
        supported = _part(extension, f"_{method.__name__}_supported", self)
        if delegate is None or supported is None or not supported(*args, **kwargs):
            return method(self, *args, **kwargs)
        return delegate(*args, **kwargs)

    return delegated


def _extension_of(extended: type) -> type | None:
    strategy = tf.distribute.get_strategy()
    return strategy.keras_extension_of(extended) if isinstance(strategy, IPUStrategyV1) else None


def _part(extension: type | None, name: str, owner: Any) -> Callable[..., Any] | None:
    """Binds a method of an extension to `owner`, an object or a class."""
    part = getattr(extension, name, None)
    if part is None:
        return None
    return functools.partial(getattr(part, "__func__", part), owner)
