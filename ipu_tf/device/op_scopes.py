"""Names of ops and layers on the JAX operations that they become: in reports, and in programs where the user asks."""

from __future__ import annotations

import contextlib
import contextvars
from typing import Any

import jax

from ipu_tf._state.context import context_value
from ipu_tf._state.registry import ProcessValue, register_state

_NO_SCOPE: Any = contextlib.nullcontext()
_named: contextvars.ContextVar[bool] = contextvars.ContextVar("named operations", default=False)

_kept: ProcessValue[bool] = register_state("names in compiled programs", ProcessValue(False))


def keep_names(wanted: bool) -> None:
    """Sets whether programs that run have the names too: profiles of JAX then show layers.

    Without, models that differ in names alone share their compiled programs in the executable cache; with, entries are
    of their own, since those of others have no names, or other ones.
    """
    _kept.value = wanted


def names_kept() -> bool:
    """Returns whether programs that run have the names."""
    return _kept.value


def named_operations() -> contextlib.AbstractContextManager[None]:
    """Context manager: what is traced has the ops' names as JAX's name scopes.

    Programs that run do without, unless `keep_names`.
    """
    return context_value(_named, True)


def scope_named(name: str) -> Any:
    """Returns the name scope of this name; one without effect if it is empty, or unless operations are named."""
    return jax.named_scope(name) if name and (_named.get() or _kept.value) else _NO_SCOPE
