"""Names of ops and layers on the JAX operations that they become, while a report is made."""

from __future__ import annotations

import contextlib
import contextvars
from typing import Any

import jax

from ipu_tf._state.context import context_value

_NO_SCOPE: Any = contextlib.nullcontext()
_named: contextvars.ContextVar[bool] = contextvars.ContextVar("named operations", default=False)


def named_operations() -> contextlib.AbstractContextManager[None]:
    """Context manager: what is traced has the ops' names as JAX's name scopes. Programs that run do without."""
    return context_value(_named, True)


def scope_named(name: str) -> Any:
    """Returns the name scope of this name; one without effect if it is empty, or unless operations are named."""
    return jax.named_scope(name) if name and _named.get() else _NO_SCOPE
