"""Where in the user's program an equation of a traced JAX function was made, and where JAX refused to trace one."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

import jax

from ipu_tf.device.op_places import OpPlace, with_text
from ipu_tf.device.source_lines import SourceLine, traceback_frames, user_lines

#: What JAX raises where a function cannot be traced: values, or shapes, that depend on data.
REFUSALS = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)


def place_of_equation(equation: Any) -> OpPlace:
    """Where an equation of a jaxpr was made."""
    stack = equation.source_info.traceback
    frames = [(f.file_name, f.line_num, f.function_name.rpartition(".")[2]) for f in stack.frames] if stack else []
    return OpPlace(equation.primitive.name, lines=user_lines(reversed(frames)))


@contextlib.contextmanager
def refusals_at_lines() -> Iterator[None]:
    """Within it, what JAX refuses to trace is raised with the line of the user's program that asks for it.

    That goes for errors that came of such a refusal too: Keras words some of them anew, and drops what JAX said.
    """
    try:
        yield
    except Exception as error:
        refused = [each for each in _chain(error) if isinstance(each, REFUSALS)]
        lines = _lines(refused[-1]) if refused else ()
        if lines:
            said = "" if refused[-1] is error else f" ({type(refused[-1]).__name__})"
            with_text(error, "\n".join([f"JAX cannot trace what is asked for{said} at", *map(str, lines)]))
        raise


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _lines(error: BaseException) -> tuple[SourceLine, ...]:
    outer = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in traceback.walk_stack(None)]
    return user_lines([*reversed(outer), *traceback_frames(error.__traceback__)])
