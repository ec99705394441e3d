"""Ordered host callbacks (`io_callback`) for infeeds and outfeeds in nested loops and branches.

    trace:      with belonging_to(state): ...      the callbacks that are traced know the program's `CallbackState`
    execution:  with executing(state, queues): ...      they find its queues there, and leave their exceptions

Ordered callbacks keep the order of elements. Replicas call the host together: their operands are gathered first, the
host computes results for all of them in order, and each replica takes its own.
An exception in one is kept, since JAX passes only its text, and is raised where the program was run.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

from ipu_tf._state.context import context_value
from ipu_tf.device.feeds.execution_queues import ExecutionQueues
from ipu_tf.device.feeds.jax_effects import reset_ordered_effects, silence_callback_errors
from ipu_tf.device.feeds.timeout import next_element
from ipu_tf.device.program.callback_state import CallbackState
from ipu_tf.device.program.program import Arrays, Types
from ipu_tf.device.program.replicas import AXIS, INSTANCES, has_axis

_traced: contextvars.ContextVar[CallbackState | None] = contextvars.ContextVar("ipu_callbacks_of_trace", default=None)


def belonging_to(state: CallbackState) -> contextlib.AbstractContextManager[None]:
    """Context of a trace whose callbacks are those of the program with this state."""
    return context_value(_traced, state)


def dequeue(name: str, types: Types, replicas: int = 1, active: jax.Array | None = None) -> Arrays:
    """Dequeues an element of an infeed by a host callback; see `call_host` for `active`."""
    state = _state_of_trace()
    return call_host(lambda: next_element(_queues(state).infeed(name)), types, replicas=replicas, active=active)


def enqueue(name: str, element: Sequence[jax.Array], replicas: int = 1, given: jax.Array | None = None) -> None:
    """Enqueues an element to an outfeed by a host callback; with a leading axis of replicas if there are several.

    Args:
        name: of the outfeed.
        element: this replica's element.
        replicas: the number of replicas.
        given: whether there is an element, `bool[]`: it is enqueued if any replica has one. By default there is.
    """
    state = _state_of_trace()

    def give(there: np.ndarray, *values: np.ndarray) -> None:
        queue = _queues(state).outfeed(name)
        if np.any(there):
            queue.put(values if queue.last_only else [np.asarray(value)[None] for value in values], 1)

    there = jnp.bool_(True) if given is None else given
    # JAX takes no ordered call under its map over replicas. The iterations of a loop keep the order.
    io_callback(_kept_error(state, give), None, *_of_all([there, *element], replicas), ordered=_alone(replicas))


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

    def answers(*arrays: Any) -> tuple[np.ndarray, ...]:
        values = tuple(map(np.asarray, arrays))
        if replicas == 1:
            return tuple(np.asarray(result) for result in function(*values))
        there, *given = values
        each = [function(*(v[r] for v in given)) if there[r] else zeros for r in range(replicas)]
        return tuple(np.stack(results) for results in zip(*each, strict=True))

    call = _kept_error(_state_of_trace(), answers)
    if replicas == 1:
        return tuple(io_callback(call, types, *operands, ordered=_alone(replicas)))
    of_all = tuple(jax.ShapeDtypeStruct((replicas, *t.shape), t.dtype) for t in types)
    there = jnp.bool_(True) if active is None else active
    results = io_callback(call, of_all, *_of_all([there, *operands], replicas), ordered=False)
    own = lax.axis_index(AXIS)
    return tuple(lax.dynamic_index_in_dim(result, own, 0, keepdims=False) for result in results)


def _state_of_trace() -> CallbackState:
    """Returns the state of the program that is traced; a new one for a trace that nothing executes."""
    return _traced.get() or CallbackState()


def _queues(state: CallbackState) -> ExecutionQueues:
    return state.queues or ExecutionQueues()


def _kept_error(state: CallbackState, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function whose exceptions are kept for the execution that calls it."""

    def call(*values: Any) -> Any:
        try:
            return function(*values)
        except BaseException as error:
            state.errors.append(error)
            raise

    return call


def _alone(replicas: int) -> bool:
    """Returns whether one device runs the program: JAX orders calls of such programs alone."""
    return replicas == 1 and not has_axis(INSTANCES)


def _of_all(values: Sequence[jax.Array], replicas: int) -> list[Any]:
    """Gathers every replica's values: `[replicas, *shape]`, the same on all replicas."""
    return [value if replicas == 1 else lax.all_gather(value, AXIS) for value in values]


@contextlib.contextmanager
def executing(state: CallbackState, queues: ExecutionQueues) -> Iterator[None]:
    """Context of an execution: raises the original exception of a failed callback in place of JAX's error.

    Args:
        state: of the program.
        queues: in which its callbacks look for infeeds and outfeeds.
    """
    with state.alone, belonging_to(state), silence_callback_errors():
        state.queues, state.errors = queues, []
        try:
            yield
            jax.effects_barrier()
        except Exception as error:
            reset_ordered_effects()
            if not state.errors:
                raise
            raise state.errors[0] from error
        finally:
            # An infeed holds its iterator until nothing refers to it, and an exception its frames.
            state.queues, state.errors = None, []
