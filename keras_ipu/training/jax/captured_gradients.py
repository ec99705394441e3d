"""Captures gradients in JAX training steps and passes them to the optimizer.

capture(tensors, tag)          an identity, whose backward rule passes the cotangent on
   └► step_capture(optimizer)  keeps it while the step is traced, and passes it to `optimizer.apply_gradients`
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend.core import get_opaque_trace_state

from ipu_tf._state.context import context_value
from ipu_tf._tracing.caller_location import caller_location
from ipu_tf.eager import backprop
from ipu_tf.emulation import EmulationError
from keras_ipu.optimizers.inner_optimizer_calls import takes_captured_grads
from keras_ipu.stock import models as keras_models

#: JAX's state of tracing while a training step is traced; None where none is.
_tracing: contextvars.ContextVar[Any] = contextvars.ContextVar("ipu_jax_step_trace", default=None)


def capture(tensors: Any, tag: str) -> Any:
    """Identity of tensors whose gradients are captured under `tag` by the innermost `GradientCaptureContext`.

    Args:
        tensors: an array, or a structure of them: one gradient is kept for each.
        tag: the name to find the gradients by.

    Raises:
        RuntimeError: when a gradient arrives and there is no context to keep it.
        EmulationError: when a gradient arrives within a function that JAX traces for itself during `fit`.
    """

    location = caller_location(f"capture of {tag!r}")

    @jax.custom_vjp
    def captured(values: Any) -> Any:
        return values

    def forward(values: Any) -> tuple[Any, None]:
        return values, None

    def backward(_: None, upstream: Any) -> tuple[Any]:
        _check_reaches_step(tag, location)
        backprop.record_captured_gradients(tag, jax.tree.leaves(upstream))
        return (upstream,)

    captured.defvjp(forward, backward)
    return captured(tensors)


def _check_reaches_step(tag: str, location: str) -> None:
    """Checks that a captured gradient is not a tracer of an inner JAX function."""
    step = _tracing.get()
    if step is not None and step != _trace_state():
        raise EmulationError(
            f"The gradient captured as {tag!r} arises in a function that JAX traces for itself, a `scan`, `while`, "
            "`cond`, `jit`, `vmap` or `checkpoint`, and cannot leave it for the optimizer. Capture the gradient of a "
            f"layer outside of it, or give a recurrent layer `unroll=True`.\n{location}"
        )


def _trace_state() -> Any:
    """Returns JAX's state of tracing: another one within each function that JAX traces."""
    return get_opaque_trace_state(convention="nnx")


ApplyWithCaptured = Callable[[Callable[[], Any]], Any]
"""Calls a function that applies the optimizer; the optimizer gets the captured gradients."""


@contextlib.contextmanager
def step_capture(optimizer: Any) -> Iterator[ApplyWithCaptured]:
    """Context that captures gradients; yields a function that passes them to the optimizer, if that takes them.

    Captured are those of this step on this replica: where gradients are accumulated, those of the last micro-batch
    reach the optimizer, as on Keras's TensorFlow backend.

    Args:
        optimizer: the optimizer of the model whose training step is traced.
    """
    with backprop.GradientCaptureContext() as context:

        def apply_with_captured(apply: Callable[[], Any]) -> Any:
            if not takes_captured_grads(optimizer):
                return apply()
            with keras_models.route_apply_through_apply_gradients(optimizer, captured_grads=context.captured_gradients):
                return apply()

        try:
            with context_value(_tracing, _trace_state()):
                yield apply_with_captured
        finally:
            # A context is open until its gradients are asked for.
            _ = context.captured_gradients
