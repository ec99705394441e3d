"""Calls of the wrapped optimizer, with captured gradients or under a condition on the device."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from ipu_tf._state.context import context_value


def do_not_convert(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of methods that AutoGraph does not convert when a `tf.function` calls them."""
    if keras.backend.backend() != "tensorflow":
        return method
    import tensorflow as tf

    unconverted: Callable[..., Any] = tf.autograph.experimental.do_not_convert(method)
    return unconverted


#: Captured gradients on their way from `apply_gradients` to `apply`, which others may wrap with Keras's signature.
_captured: contextvars.ContextVar[Mapping[str, Any] | None] = contextvars.ContextVar("captured_grads", default=None)


def captured_gradients_scope(captured_grads: Mapping[str, Any] | None) -> contextlib.AbstractContextManager[None]:
    """Context in which `current_captured_gradients` returns these captured gradients."""
    return context_value(_captured, captured_grads)


def current_captured_gradients() -> Mapping[str, Any] | None:
    """Returns the captured gradients of the running `apply_gradients`."""
    return _captured.get()


def takes_captured_grads(optimizer: Any) -> bool:
    """Returns whether an optimizer takes captured gradients: by attribute, or as argument of `apply_gradients`."""
    says_so = getattr(optimizer, "supports_captured_grads", None)
    if says_so is not None:
        return bool(says_so)
    return "captured_grads" in inspect.signature(type(optimizer).apply_gradients).parameters


def apply_inner_gradients(
    optimizer: Any, grads: Sequence[Any], variables: Sequence[Any], captured_grads: Mapping[str, Any] | None
) -> None:
    """Applies gradients with a third-party optimizer, with captured gradients if it accepts them."""
    if captured_grads is not None and takes_captured_grads(optimizer):
        optimizer.apply_gradients(list(zip(grads, variables, strict=True)), captured_grads=captured_grads)
    else:
        optimizer.apply(list(grads), list(variables))


def apply_if(due: Any, step: Callable[[], None], state: Sequence[Any]) -> None:
    """Runs `step`, which changes variables, if a condition computed on the device holds.

    Args:
        due: a boolean scalar.
        step: assigns to some of the variables of `state`, and to no others.
        state: Keras variables, or TensorFlow's with Keras's TensorFlow backend.
    """
    if keras.backend.backend() == "tensorflow":
        keras.ops.cond(due, step, _nothing)
        return
    # A branch of other backends must be free of effects: it gives the variables' new values.
    after = keras.ops.cond(due, lambda: _updated_values(step, state), lambda: [variable.value for variable in state])
    for variable, value in zip(state, after, strict=True):
        variable.assign(value)


def _updated_values(step: Callable[[], None], state: Sequence[Any]) -> list[Any]:
    with keras.StatelessScope(state_mapping=[(variable, variable.value) for variable in state]) as scope:
        step()
    return [scope.get_current_value(variable) for variable in state]


def _nothing() -> None:
    pass
