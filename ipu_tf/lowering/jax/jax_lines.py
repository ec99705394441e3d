"""Finds the user's source line of a jaxpr equation, and adds it to JAX's tracing errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

from ipu_tf.device.op_locations import OpLocation, with_text
from ipu_tf.device.source_lines import SourceLine, stack_frames, traceback_frames, user_lines

#: What JAX raises where a function cannot be traced: values, or shapes, that depend on data.
REFUSALS = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)
_EAGERLY = "Keras's `compile(run_eagerly=True)` runs the steps of a model op by op instead, for debugging."


def location_of_equation(equation: Any) -> OpLocation:
    """Returns the op and source lines of a jaxpr's equation."""
    stack = equation.source_info.traceback
    frames = [(f.file_name, f.line_num, f.function_name.rpartition(".")[2]) for f in stack.frames] if stack else []
    return OpLocation(equation.primitive.name, lines=user_lines(reversed(frames)))


@contextlib.contextmanager
def refusals_at_lines() -> Iterator[None]:
    """Context manager: adds the user's source line to JAX's tracing errors.

    Also to errors raised from such an error: Keras rewords some of them, and drops JAX's message.
    """
    try:
        yield
    except Exception as error:
        refused = [each for each in _chain(error) if isinstance(each, REFUSALS)]
        lines = _lines(refused[-1]) if refused else ()
        if lines:
            said = "" if refused[-1] is error else f" ({type(refused[-1]).__name__})"
            with_text(error, "\n".join([f"JAX cannot trace what is asked for{said} at", *map(str, lines), _EAGERLY]))
        raise


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _lines(error: BaseException) -> tuple[SourceLine, ...]:
    return user_lines([*stack_frames(), *traceback_frames(error.__traceback__)])
