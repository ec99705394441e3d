"""Logger `ipu_tf.device`: at DEBUG parts of programs, chunks and their feeds; at TRACE operations that are compiled.

`POPLAR_LOG_LEVEL` sets its level; it says nothing otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

TRACE = 5
"""Poplar's level below DEBUG."""
logging.addLevelName(TRACE, "TRACE")
LOG = logging.getLogger("ipu_tf.device")
LOG.setLevel(logging.WARNING)


def logs_operations() -> bool:
    """Returns whether the operations of what is compiled are logged."""
    return LOG.isEnabledFor(TRACE)


def log_operations(jitted: Any, arguments: tuple[Any, ...]) -> None:
    """Logs the operations of a function of `jax.jit` that is compiled for these arguments."""
    if logs_operations():
        for line in _operations(jitted.trace(*arguments).jaxpr.jaxpr, 1):  # which the compilation uses too
            LOG.log(TRACE, "ipu_tf: op%s", line)


def _operations(jaxpr: Any, depth: int) -> Iterator[str]:
    """Yields operations, with those of loops, branches and calls below them."""
    for each in jaxpr.eqns:
        name = "/".join(filter(None, (str(each.source_info.name_stack), each.primitive.name)))
        yield f"{'  ' * depth}{name} -> {', '.join(variable.aval.str_short() for variable in each.outvars)}"
        for value in each.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _operations(inner, depth + 1)
