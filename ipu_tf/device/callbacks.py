"""Feeds reached from inside a running program: for queues used in a loop or branch deeper than a streamed loop.

Ordered callbacks keep the order of elements. An exception in one is kept, since JAX passes on only its text, and
is raised where the program was run.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from ipu_tf.device import queues
from ipu_tf.device.jax_effects import forget_effects, quiet_callbacks
from ipu_tf.device.program import Arrays, Types

_lock = threading.Lock()
_failures: list[BaseException] = []


def dequeue(name: str, types: Types) -> Arrays:
    """The next element of an infeed, asked for by the running program."""

    return call_host(lambda: queues.infeed(name).next(), types)


def enqueue(name: str, row: Sequence[jax.Array]) -> None:
    """One row for an outfeed, given by the running program."""

    def give(*values: np.ndarray) -> None:
        queue = queues.outfeed(name)
        queue.put(values if queue.last_only else [np.asarray(value)[None] for value in values], 1)

    io_callback(give, None, *row, ordered=True)


def call_host(function: Callable[..., Sequence[Any]], types: Types, *operands: jax.Array) -> Arrays:
    """The results, of some shapes and dtypes, of a Python function that the running program calls, in its order.

    Args:
        function: takes one array an operand and gives one an entry of `types`. What it raises ends the program.
        types: shape and dtype of each result.
        *operands: what the program gives it.
    """

    def call(*values: Any) -> tuple[np.ndarray, ...]:
        try:
            return tuple(np.asarray(result) for result in function(*map(np.asarray, values)))
        except BaseException as error:
            with _lock:
                _failures.append(error)
            raise

    return tuple(io_callback(call, types, *operands, ordered=True))


@contextlib.contextmanager
def failures_raised() -> Iterator[None]:
    """Raises the exception of a callback that failed in it, in place of JAX's account of it."""
    with _lock:
        _failures.clear()
    try:
        with quiet_callbacks():
            yield
            jax.effects_barrier()
    except Exception as error:
        forget_effects()
        with _lock:
            failure = _failures.pop() if _failures else None
        if failure is None:
            raise
        raise failure from error
