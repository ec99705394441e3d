"""Excludes native code from what is traced: calls that only this process, or this machine, can run.

Programs for files and for other runtimes are traced so: `portable` and `without_native_code`.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

from ipu_tf._state.context import context_value

_allowed = contextvars.ContextVar("native_code_allowed", default=True)


def without_native_code() -> contextlib.AbstractContextManager[None]:
    """Context manager: traces without calls to oneDNN and to native kernels, for exported programs."""
    return context_value(_allowed, False)


def portable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function for export: traced anew, without calls to native code."""

    def traced(*arguments: Any) -> Any:
        with without_native_code():
            return function(*arguments)

    return traced


def native_code_allowed() -> bool:
    """Returns whether code that is traced now may call native code."""
    return _allowed.get()
