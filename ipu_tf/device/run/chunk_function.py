"""Builds the JAX function that runs a chunk of a streamed loop's iterations over staged elements.

    host     stage 0 | stage 1 | stage 2 | ...
    device           | chunk 0 | chunk 1 | chunk 2 ...

One executable serves every chunk of a loop: how many iterations a chunk runs is an argument, not a constant, so
compile time does not grow with the length of the loop, and neither does memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.memory.hidden_state import ITERATION, replica_axes
from ipu_tf.device.numerics.assertions import ASSERTIONS, failed, stamped
from ipu_tf.device.program.program import Arrays, Elements, Hidden, LoopPart, Program, Types
from ipu_tf.device.program.replicas import Replicas, any_replica


class OutfeedBuffer(NamedTuple):
    """Buffer of elements that a chunk has enqueued to an outfeed.

    Attributes:
        arrays: `[capacity, *shape]` for each tensor of an element; the newest element alone where only that is kept.
        length: how many elements there are.
    """

    arrays: Arrays
    length: jax.Array


def replicated_chunk_function(
    program: Program, part: LoopPart, last_only: frozenset[str], capacity: int, replicas: Replicas
) -> Any:
    """As `chunk_function`, for all replicas: arrays have a leading replica axis, staged and enqueued elements
    after that of iterations."""
    run = chunk_function(part, last_only, capacity, replicas.count > 1)
    axes = replica_axes(program.hidden)
    outfeed_axes = {name: 0 if name in last_only else 1 for name in part.outfeeds}
    return replicas.over(run, (0, 0, axes, 1, None), (0, axes, outfeed_axes, None, None, None))


def chunk_function(part: LoopPart, last_only: frozenset[str], capacity: int, replicated: bool = False) -> Any:
    """Returns the function that runs up to `capacity` iterations of a loop.

    Args:
        part: the loop.
        last_only: outfeeds of which only the newest element is kept.
        capacity: length of the staged arrays and of the outfeeds' buffers.
        replicated: whether it runs as one of several replicas, which continue as long as any of them does.

    Returns:
        `run(carry, constants, hidden, staged, count)`, to be compiled with the carry donated. It gives the final
        carry, hidden state, outfeed buffers and how many elements each holds, the number of iterations run, and whether
        the loop would go on.
    """

    def run(
        carry: Arrays, constants: Arrays, hidden: Hidden, staged: Mapping[str, Arrays], count: Any
    ) -> tuple[Arrays, Hidden, Elements, dict[str, jax.Array], jax.Array, jax.Array]:
        counted = part.trip_count is not None

        def goes_on(carry: Arrays) -> jax.Array:
            more = jnp.reshape(part.goes_on(carry, constants), ())
            return any_replica(more) if replicated else more

        def condition(state: Any) -> jax.Array:
            index, carry, hidden = state[:3]
            more = index < count
            if ASSERTIONS in hidden:  # results after a failed check are not used
                stopped = failed(hidden[ASSERTIONS])
                more = more & ~(any_replica(stopped) if replicated else stopped)
            return more if counted else more & goes_on(carry)

        def body(state: Any) -> Any:
            index, carry, hidden, buffers = state
            before = hidden
            elements = {name: tuple(_element(a, index) for a in arrays) for name, arrays in staged.items()}
            carry, hidden, enqueued = part.step(carry, constants, hidden, elements)
            if ASSERTIONS in hidden:
                now = stamped(before[ASSERTIONS], hidden[ASSERTIONS], before[ITERATION])
                hidden = {**hidden, ASSERTIONS: now}
            if ITERATION in hidden:
                hidden = {**hidden, ITERATION: hidden[ITERATION] + 1}
            stored = {name: store(name, buffers[name], enqueued[name], index) for name in buffers}
            return index + 1, carry, hidden, stored

        def store(name: str, buffer: OutfeedBuffer, element: Arrays, index: jax.Array) -> OutfeedBuffer:
            """Stores an iteration's element in a queue's buffer."""
            given: jax.Array | bool = True
            if name in part.sometimes:
                given, *rest = element
                given, element = any_replica(given) if replicated else given, tuple(rest)
            at = buffer.length if name in part.sometimes else index
            if name in last_only:
                arrays = tuple(jnp.where(given, new, old) for new, old in zip(element, buffer.arrays, strict=True))
            else:
                arrays = _put(buffer.arrays, element, at)  # an element that was not given is overwritten by the next
            return OutfeedBuffer(arrays, buffer.length + jnp.asarray(given, jnp.int32))

        start = (jnp.int32(0), carry, hidden, _buffers(part, last_only, capacity))
        index, carry, hidden, buffers = lax.while_loop(condition, body, start)
        blocks = {name: buffer.arrays for name, buffer in buffers.items()}
        counts = {name: buffer.length for name, buffer in buffers.items()}
        return carry, hidden, blocks, counts, index, goes_on(carry)

    return run


def _buffers(part: LoopPart, last_only: frozenset[str], capacity: int) -> dict[str, OutfeedBuffer]:
    def empty(name: str, types: Types) -> Arrays:
        return tuple(jnp.zeros(t.shape if name in last_only else (capacity, *t.shape), t.dtype) for t in types)

    return {name: OutfeedBuffer(empty(name, types), jnp.int32(0)) for name, types in part.outfeeds.items()}


def _element(array: jax.Array, index: jax.Array) -> jax.Array:
    return lax.dynamic_index_in_dim(array, index, 0, keepdims=False)


def _put(buffers: Arrays, element: Arrays, index: jax.Array) -> Arrays:
    return tuple(lax.dynamic_update_index_in_dim(b, r, index, 0) for b, r in zip(buffers, element, strict=True))
