"""Lets other packages take part in a strategy's scope without the strategy knowing what they do.

`keras_ipu` registers a hook here: within a scope it makes new Keras models IPU models. It is the one package that is
imported from below, by name, on entering a scope: the three lines of a user's script do not name it, and a scope
without it would leave Keras models on the CPU in silence.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

ScopeHook = Callable[[Any], "contextlib.AbstractContextManager[Any]"]

_hooks: list[ScopeHook] = []


def add_scope_hook(hook: ScopeHook) -> None:
    """Registers a hook.

    Args:
        hook: from the strategy to a context manager that is entered with the strategy's scope.
    """
    if hook not in _hooks:
        _hooks.append(hook)


@contextlib.contextmanager
def entered_scope(strategy: Any) -> Iterator[None]:
    """Enters every hook's context, Keras's among them."""
    importlib.import_module("keras_ipu")
    with contextlib.ExitStack() as stack:
        for hook in _hooks:
            stack.enter_context(hook(strategy))
        yield
