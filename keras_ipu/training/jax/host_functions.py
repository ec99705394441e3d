"""Warns about a function of JAX's that computes with layers of a strategy's scope on JAX's own device.

`fit`, `evaluate` and `predict` compute on the emulated IPU. A function that user code gives to `jax.jit` and calls
itself is JAX's, which runs it on its default device.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import sys
import weakref
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import jax
import keras
import tensorflow as tf

from ipu_tf._state.once import first_time
from ipu_tf._state.registry import register_state
from ipu_tf._tracing.caller_location import caller_location
from keras_ipu.stock import patches as keras_patches
from keras_ipu.stock.ownership import on_device

_log = logging.getLogger("ipu_tf")
_layers: weakref.WeakSet[Any] = register_state(
    "layers of scopes, for JAX", weakref.WeakSet(), kept="each goes by itself"
)


def install() -> None:
    """Patches calls of layers of a strategy's scope, to see whether JAX traces them for user code. Idempotent."""
    keras_patches.patch_method(keras.layers.Layer, "__call__", lambda layer: layer in _layers, _call)


def note_layer(made: Any) -> None:
    """Records a layer that is made in a strategy's scope.

    Args:
        made: an operation or node of Keras's.
    """
    if isinstance(made, keras.layers.Layer) and on_device(tf.distribute.get_strategy()):
        _layers.add(made)


def _call(stock: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs))):
        function = _traced_function(sys._getframe())
        if function is not None and first_time(
            "function on the host", function.co_name, function.co_filename, function.co_firstlineno
        ):
            _warn(function.co_name)
    return stock(layer, *args, **kwargs)


def _traced_function(frame: FrameType | None) -> CodeType | None:
    """Returns the code of the function that user code gave to JAX; None if this package, or Keras, traces.

    Args:
        frame: within the function that is traced.
    """
    found: CodeType | None = None
    traced: CodeType | None = None
    inner: CodeType | None = None
    while frame is not None:
        name, package = frame.f_code.co_name, _package(frame.f_code.co_filename)
        if package == "jax":
            traced = traced or inner
        elif package == "keras" and name == "compute_output_spec":
            return None  # shapes alone
        elif traced is not None:
            if package in ("ipu_tf", "keras_ipu"):
                return None
            found, traced = traced if package is None else found, None
        inner, frame = frame.f_code, frame.f_back
    return found


@functools.lru_cache(maxsize=4096)
def _package(file: str) -> str | None:
    """Returns which of the packages that trace by themselves a file is of; None for user code and other packages."""
    parents = Path(file).parents
    return next((name for name, root in _roots().items() if root in parents), None)


@functools.cache
def _roots() -> dict[str, Path]:
    specs = {name: importlib.util.find_spec(name) for name in ("jax", "keras", "tensorflow", "ipu_tf", "keras_ipu")}
    return {name: Path(str(spec.origin)).parent for name, spec in specs.items() if spec is not None}


def _warn(name: str) -> None:
    _log.warning(
        "ipu_tf: the JAX function `%s` computes with weights of an IPUStrategy's scope on JAX's %s, not on the device: "
        "user code called it. fit, evaluate and predict run there by themselves.\n%s",
        name,
        jax.default_backend().upper(),
        caller_location(name),
    )
