"""Private API of Keras's compiled metrics and losses: where they create their variables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def metrics_built_in(model: Any, scope: Callable[[], contextlib.AbstractContextManager[Any]]) -> Iterator[None]:
    """Context in which metrics and losses that `compile` was given build themselves in a scope.

    Keras builds them in the first step, when it knows the shapes of targets and predictions.

    Args:
        model: compiled or not.
        scope: makes the context in which their variables are created.
    """
    parts = (getattr(model, name, None) for name in ("_compile_metrics", "_compile_loss"))
    unbuilt = [part for part in parts if part is not None and not part.built]
    for part in unbuilt:
        # Bypasses Keras's own `__setattr__`, which would track it.
        object.__setattr__(part, "build", _in_scope(part.build, scope))
    try:
        yield
    finally:
        for part in unbuilt:
            object.__delattr__(part, "build")


def _in_scope(build: Callable[..., Any], scope: Callable[[], contextlib.AbstractContextManager[Any]]) -> Any:
    def within(*arguments: Any) -> Any:
        with scope():
            return build(*arguments)

    return within
