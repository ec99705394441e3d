"""Defers errors of a program's construction until it runs, where Graphcore's interface raises them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_local = threading.local()


@contextlib.contextmanager
def deferring() -> Iterator[list[Exception]]:
    """Scope, in this thread, in which `defer` appends errors to the yielded list instead of raising them."""
    outer = getattr(_local, "errors", None)
    _local.errors = []
    try:
        yield _local.errors
    finally:
        _local.errors = outer


def defer(error: Exception) -> None:
    """Defers an error until the program that is being built runs; raises it at once outside of `deferring`."""
    errors: list[Exception] | None = getattr(_local, "errors", None)
    if errors is None:
        raise error
    errors.append(error)


def raise_first_error(errors: list[Exception]) -> None:
    """Raises the first error deferred while a program was built, if there is one."""
    if errors:
        raise errors[0]
