"""Logger `ipu_tf.device`: at DEBUG parts of programs, chunks and their feeds; at TRACE operations that are compiled.

`POPLAR_LOG_LEVEL` sets its level; it says nothing otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from ipu_tf.device.program.program import LoopPart, Program, Types, bytes_of

TRACE = 5
"""Poplar's level below DEBUG."""
logging.addLevelName(TRACE, "TRACE")
LOG = logging.getLogger("ipu_tf.device")
LOG.setLevel(logging.WARNING)


def log_parts(program: Program) -> None:
    """Logs the parts of a program that was compiled, with the types of their feeds."""
    if not LOG.isEnabledFor(logging.DEBUG):
        return
    for index, part in enumerate(program.parts):
        kind = f"loop that carries {len(part.carry_in)} values" if isinstance(part, LoopPart) else "straight line"
        feeds = [*_queues("infeed", part.infeeds), *_queues("outfeed", part.outfeeds)]
        LOG.debug("ipu_tf: %s, part %d: %s", program.readable_name, index, "; ".join([kind, *feeds]))


def log_chunk(program: Program, index: int, part: LoopPart, iterations: int, seconds: float) -> None:
    """Logs a chunk that a loop ran, with the bytes that its feeds moved."""
    if not LOG.isEnabledFor(logging.DEBUG):
        return
    feeds = [("infeed", part.infeeds), ("outfeed", part.outfeeds)]
    moved = [
        f"; {kind} {name}: {iterations * bytes_of(types)} bytes" for kind, of in feeds for name, types in of.items()
    ]
    what = program.readable_name, index, iterations, 1e3 * seconds, "".join(moved)
    LOG.debug("ipu_tf: %s, part %d: chunk of %d iterations in %.2f ms%s", *what)


def log_operations(jitted: Any, arguments: tuple[Any, ...]) -> None:
    """Logs the operations of a function of `jax.jit` that is compiled for these arguments."""
    if LOG.isEnabledFor(TRACE):
        for line in _operations(jitted.trace(*arguments).jaxpr.jaxpr, 1):  # which the compilation uses too
            LOG.log(TRACE, "ipu_tf: op%s", line)


def _queues(kind: str, queues: Mapping[str, Types]) -> Iterator[str]:
    for name, types in queues.items():
        yield f"{kind} {name} of {', '.join(f'{each.dtype.name}{list(each.shape)}' for each in types)}"


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
