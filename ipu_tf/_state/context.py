"""`context_value`: the value of a context variable within a `with` block."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def context_value(variable: contextvars.ContextVar[T], value: T) -> Iterator[None]:
    """Context in which a context variable has a value, in this thread.

    Example:
        >>> depth = contextvars.ContextVar("depth", default=0)
        >>> with context_value(depth, 1):
        ...     print(depth.get())
        1
        >>> depth.get()
        0
    """
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
