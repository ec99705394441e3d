"""Helpers of the ops that some programs use directly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_UNDEFINED, _ON, _OFF = "THREESTATE_UNDEFINED", "THREESTATE_ON", "THREESTATE_OFF"


def get_activation_name(identifier: str | Callable[..., Any]) -> str:
    """The name of an activation function.

    Args:
        identifier: a name, given back as it is, or a function of TensorFlow or Keras.

    Raises:
        TypeError: for functions of other modules, and for anything else.

    Example:
        >>> import tensorflow as tf
        >>> get_activation_name(tf.keras.activations.sigmoid)
        'sigmoid'
    """
    if isinstance(identifier, str):
        return identifier
    if not callable(identifier):
        raise TypeError(f"Could not interpret activation function identifier: {identifier!r}")
    module, name = getattr(identifier, "__module__", "?"), getattr(identifier, "__name__", type(identifier).__name__)
    if str(module).partition(".")[0] not in ("tensorflow", "keras"):
        raise TypeError(f"Unrecognized function : {module}.{name}")
    return name


def bool_to_three_state(value: bool | None, default: str | None = None) -> str:
    """`THREESTATE_ON` or `THREESTATE_OFF`; for None the default, or `THREESTATE_UNDEFINED` without one.

    Example:
        >>> bool_to_three_state(True), bool_to_three_state(None)
        ('THREESTATE_ON', 'THREESTATE_UNDEFINED')
    """
    if value is None:
        return default or _UNDEFINED
    return _ON if value else _OFF


def get_accumulator_dtype(variable: Any, dtype_override: Any) -> tf.DType:
    """The dtype in which something is accumulated.

    Args:
        variable: a variable or tensor.
        dtype_override: None for the variable's own dtype, a dtype, or a function from the variable to a dtype.

    Raises:
        TypeError: if the override is none of these.

    Example:
        >>> import tensorflow as tf
        >>> get_accumulator_dtype(tf.constant(1.0), lambda variable: tf.float16)
        tf.float16
    """
    if dtype_override is None:
        return variable.dtype
    # A DType can be called, too.
    if isinstance(dtype_override, tf.DType) or not callable(dtype_override) or isinstance(dtype_override, type):
        return tf.as_dtype(dtype_override)
    return tf.as_dtype(dtype_override(variable))


@contextlib.contextmanager
def gradient_override_scope(training: bool) -> Iterator[None]:
    """A scope without effect: on an IPU it tells the compiler which matrix products belong to which pass.

    Args:
        training: whether the graph within is a training graph.
    """
    yield
