"""Ordered host callbacks (`io_callback`) for infeeds and outfeeds in nested loops and branches.

Ordered callbacks keep the order of elements. Replicas call the host together: their operands are gathered first, the
host computes results for all of them in order, and each replica takes its own.
An exception in one is kept, since JAX passes only its text, and is raised where the program was run.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

from ipu_tf._state.registry import register_state
from ipu_tf.device.feeds import queues
from ipu_tf.device.feeds.jax_effects import reset_ordered_effects, silence_callback_errors
from ipu_tf.device.feeds.timeout import next_element
from ipu_tf.device.program.program import Arrays, Types
from ipu_tf.device.program.replicas import AXIS, INSTANCES, has_axis

_lock = threading.Lock()
_failures: list[BaseException] = register_state("exceptions of host callbacks", [])


def dequeue(name: str, types: Types, replicas: int = 1, active: jax.Array | None = None) -> Arrays:
    """Dequeues an element of an infeed by a host callback; see `call_host` for `active`."""

    return call_host(lambda: next_element(queues.infeed(name)), types, replicas=replicas, active=active)


def enqueue(name: str, element: Sequence[jax.Array], replicas: int = 1, given: jax.Array | None = None) -> None:
    """Enqueues an element to an outfeed by a host callback; with a leading axis of replicas if there are several.

    Args:
        name: of the outfeed.
        element: this replica's element.
        replicas: the number of replicas.
        given: whether there is an element, `bool[]`: it is enqueued if any replica has one. By default there is.
    """

    def give(there: np.ndarray, *values: np.ndarray) -> None:
        queue = queues.outfeed(name)
        if np.any(there):
            queue.put(values if queue.last_only else [np.asarray(value)[None] for value in values], 1)

    there = jnp.bool_(True) if given is None else given
    # JAX takes no ordered call under its map over replicas. The iterations of a loop keep the order.
    io_callback(give, None, *_of_all([there, *element], replicas), ordered=_alone(replicas))


def call_host(
    function: Callable[..., Sequence[Any]],
    types: Types,
    *operands: jax.Array,
    replicas: int = 1,
    active: jax.Array | None = None,
) -> Arrays:
    """Calls a Python function from the running program, in program order, and returns its results.

    Args:
        function: takes one array for each operand, returns one for each of `types`. Its exceptions end the program.
        types: shape and dtype of each result.
        *operands: values of the program.
        replicas: how many replicas call it, each with its own values; they have to share a device.
        active: whether this replica calls it, `bool[]`; if not, its results are zeros. By default all replicas do.
    """
    zeros = [np.zeros(t.shape, t.dtype) for t in types]

    def answers(values: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        if replicas == 1:
            return tuple(np.asarray(result) for result in function(*values))
        there, *given = values
        each = [function(*(v[r] for v in given)) if there[r] else zeros for r in range(replicas)]
        return tuple(np.stack(results) for results in zip(*each, strict=True))

    def call(*values: Any) -> tuple[np.ndarray, ...]:
        try:
            return answers(tuple(map(np.asarray, values)))
        except BaseException as error:
            with _lock:
                _failures.append(error)
            raise

    if replicas == 1:
        return tuple(io_callback(call, types, *operands, ordered=_alone(replicas)))
    of_all = tuple(jax.ShapeDtypeStruct((replicas, *t.shape), t.dtype) for t in types)
    there = jnp.bool_(True) if active is None else active
    results = io_callback(call, of_all, *_of_all([there, *operands], replicas), ordered=False)
    own = lax.axis_index(AXIS)
    return tuple(lax.dynamic_index_in_dim(result, own, 0, keepdims=False) for result in results)


def _alone(replicas: int) -> bool:
    """Returns whether one device runs the program: JAX orders calls of such programs alone."""
    return replicas == 1 and not has_axis(INSTANCES)


def _of_all(values: Sequence[jax.Array], replicas: int) -> list[Any]:
    """Gathers every replica's values: `[replicas, *shape]`, the same on all replicas."""
    return [value if replicas == 1 else lax.all_gather(value, AXIS) for value in values]


@contextlib.contextmanager
def raise_callback_errors() -> Iterator[None]:
    """Context manager: raises the original exception of a failed callback in place of JAX's error."""
    with _lock:
        _failures.clear()
    try:
        with silence_callback_errors():
            yield
            jax.effects_barrier()
    except Exception as error:
        reset_ordered_effects()
        with _lock:
            failure = _failures.pop() if _failures else None
        if failure is None:
            raise
        raise failure from error
