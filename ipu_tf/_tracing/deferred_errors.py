"""Defers errors of a program's construction until it runs, where Graphcore's interface raises them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_local = threading.local()


@contextlib.contextmanager
def deferring() -> Iterator[list[Exception]]:
    """Within it, in this thread, `defer` keeps errors in the list it gives, instead of raising them."""
    outer = getattr(_local, "errors", None)
    _local.errors = []
    try:
        yield _local.errors
    finally:
        _local.errors = outer


def defer(error: Exception) -> None:
    """Keeps an error for the program that is being built; raises it at once where nothing keeps errors."""
    errors: list[Exception] | None = getattr(_local, "errors", None)
    if errors is None:
        raise error
    errors.append(error)


def raise_first_error(errors: list[Exception]) -> None:
    """Raises the first of the errors that a program was built with, if there are any."""
    if errors:
        raise errors[0]
