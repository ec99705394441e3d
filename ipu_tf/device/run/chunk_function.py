"""Builds the JAX function that runs a chunk of a streamed loop's iterations over staged elements.

    host     stage 0 | stage 1 | stage 2 | ...
    device           | chunk 0 | chunk 1 | chunk 2 ...

One executable serves every chunk of a loop: how many iterations a chunk runs is an argument, not a constant, so
compile time does not grow with the length of the loop, and neither does memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.memory.hidden_state import ITERATION, replica_axes
from ipu_tf.device.numerics.assertions import ASSERTIONS, failed, stamped
from ipu_tf.device.program.program import Arrays, Elements, Hidden, LoopPart, Program, Types
from ipu_tf.device.program.replicas import Replicas, any_replica
from ipu_tf.device.run.feed_agreement import agreed


class OutfeedBuffer(NamedTuple):
    """Buffer of elements that a chunk has enqueued to an outfeed.

    Attributes:
        arrays: `[capacity, *shape]` for each tensor of an element; the newest element alone where only that is kept.
        length: how many elements there are.
    """

    arrays: Arrays
    length: jax.Array


class LoopState(NamedTuple):
    """What `lax.while_loop` carries from one iteration of a chunk to the next.

    Attributes:
        done: how many iterations have run.
        carry: the loop's values.
        hidden: hidden state.
        buffers: what was enqueued, by outfeed.
    """

    done: jax.Array
    carry: Arrays
    hidden: Hidden
    buffers: dict[str, OutfeedBuffer]


def replicated_chunk_function(
    program: Program, part: LoopPart, last_only: frozenset[str], capacity: int, counted: bool, replicas: Replicas
) -> Any:
    """As `chunk_function`, for all replicas: arrays have a leading replica axis, staged and enqueued elements
    after that of iterations.

    Where instances agree (`feed_agreement`) the count is what one says of its chunk, the last result what all said.
    """
    run = chunk_function(part, last_only, capacity, counted, replicas.count * replicas.instances > 1)
    axes = replica_axes(program.hidden)
    outfeed_axes = {name: 0 if name in last_only else 1 for name in part.outfeeds}
    results: tuple[Any, ...] = (0, axes, outfeed_axes, None, None, None)
    if not agrees(part, replicas):
        return replicas.over(run, (0, 0, axes, 1, None), results)

    def run_agreed(carry: Arrays, constants: Arrays, hidden: Hidden, staged: Any, own: jax.Array) -> tuple[Any, ...]:
        count, rows = agreed(own)
        return *run(carry, constants, hidden, staged, count), rows

    return replicas.over(run_agreed, (0, 0, axes, 1, None), (*results, None))


def agrees(part: LoopPart, replicas: Replicas) -> bool:
    """Returns whether the instances agree before each chunk on its number of iterations: where each feeds the loop."""
    return replicas.instances > 1 and bool(part.infeeds)


def chunk_function(
    part: LoopPart, last_only: frozenset[str], capacity: int, counted: bool, replicated: bool = False
) -> Any:
    """Returns the function that runs up to `capacity` iterations of a loop.

    Args:
        part: the loop.
        last_only: outfeeds of which only the newest element is kept.
        capacity: length of the staged arrays and of the outfeeds' buffers.
        counted: whether the host knows how many iterations there are, so that the loop's own condition is not asked.
        replicated: whether it runs as one of several replicas, which continue as long as any of them does.

    Returns:
        `run(carry, constants, hidden, staged, count)`, to be compiled with the carry donated. It gives the final
        carry, hidden state, outfeed buffers and how many elements each holds, the number of iterations run, and whether
        the loop would go on, True where the host counts.
    """
    return _ChunkLoop(part, last_only, capacity, counted, replicated).run


@dataclasses.dataclass(frozen=True, eq=False)
class _ChunkLoop:
    """The loop over a chunk's iterations; attributes as the arguments of `chunk_function`."""

    part: LoopPart
    last_only: frozenset[str]
    capacity: int
    counted: bool
    replicated: bool

    def run(
        self, carry: Arrays, constants: Arrays, hidden: Hidden, staged: Mapping[str, Arrays], count: Any
    ) -> tuple[Arrays, Hidden, Elements, dict[str, jax.Array], jax.Array, jax.Array]:
        """Runs `count` iterations over the staged elements; fewer where the loop ends before."""
        end = lax.while_loop(
            lambda state: self._continues(state, constants, count),
            lambda state: self._iteration(state, constants, staged),
            LoopState(jnp.int32(0), carry, hidden, self._empty_buffers()),
        )
        elements = {name: buffer.arrays for name, buffer in end.buffers.items()}
        lengths = {name: buffer.length for name, buffer in end.buffers.items()}
        goes_on = jnp.bool_(True) if self.counted else self._goes_on(end.carry, constants)
        return end.carry, end.hidden, elements, lengths, end.done, goes_on

    def _continues(self, state: LoopState, constants: Arrays, count: Any) -> jax.Array:
        """The loop's condition: whether the chunk runs another iteration."""
        more = state.done < count
        if ASSERTIONS in state.hidden:  # results after a failed check are not used
            more = more & ~self._on_any_replica(failed(state.hidden[ASSERTIONS]))
        return more if self.counted else more & self._goes_on(state.carry, constants)

    def _goes_on(self, carry: Arrays, constants: Arrays) -> jax.Array:
        """Whether the program's own loop would run another iteration."""
        return self._on_any_replica(jnp.reshape(self.part.goes_on(carry, constants), ()))

    def _on_any_replica(self, flag: Any) -> Any:
        return any_replica(flag) if self.replicated else flag

    def _iteration(self, state: LoopState, constants: Arrays, staged: Mapping[str, Arrays]) -> LoopState:
        """The loop's body: takes an element of each infeed, runs a step, stores what it enqueues."""
        elements = {name: tuple(_element(a, state.done) for a in arrays) for name, arrays in staged.items()}
        carry, hidden, enqueued = self.part.step(state.carry, constants, state.hidden, elements)
        if self.replicated and self.part.feedless and not self.counted:
            carry, hidden = self._of_replicas_that_go_on(state, (carry, hidden), constants)
        hidden = _with_iteration(state.hidden, hidden)
        stored = {name: self._stored(name, b, enqueued[name], state.done) for name, b in state.buffers.items()}
        return LoopState(state.done + 1, carry, hidden, stored)

    def _of_replicas_that_go_on(
        self, before: LoopState, after: tuple[Arrays, Hidden], constants: Arrays
    ) -> tuple[Arrays, Hidden]:
        """Returns what an iteration of a feedless loop leaves: a replica whose loop has ended keeps what it had."""
        own = jnp.reshape(self.part.goes_on(before.carry, constants), ())
        carry, hidden = after
        changed = {key: value for key, value in hidden.items() if key != ITERATION}  # which is the same for all
        chosen: tuple[Arrays, Hidden] = jax.tree.map(
            lambda new, old: jnp.where(own, new, old),
            (carry, changed),
            (before.carry, {key: before.hidden[key] for key in changed}),
        )
        return chosen[0], {**hidden, **chosen[1]}

    def _stored(self, name: str, buffer: OutfeedBuffer, element: Arrays, index: jax.Array) -> OutfeedBuffer:
        """Returns an outfeed's buffer with the element that an iteration enqueued, if it enqueued one."""
        given: jax.Array | bool = True
        if name in self.part.sometimes:
            given, *rest = element
            given, element = self._on_any_replica(given), tuple(rest)
        at = buffer.length if name in self.part.sometimes else index
        if name in self.last_only:
            arrays = tuple(jnp.where(given, new, old) for new, old in zip(element, buffer.arrays, strict=True))
        else:
            arrays = _put(buffer.arrays, element, at)  # an element that was not given is overwritten by the next
        return OutfeedBuffer(arrays, buffer.length + jnp.asarray(given, jnp.int32))

    def _empty_buffers(self) -> dict[str, OutfeedBuffer]:
        def empty(name: str, types: Types) -> Arrays:
            return tuple(
                jnp.zeros(t.shape if name in self.last_only else (self.capacity, *t.shape), t.dtype) for t in types
            )

        return {name: OutfeedBuffer(empty(name, types), jnp.int32(0)) for name, types in self.part.outfeeds.items()}


def _with_iteration(before: Hidden, after: Hidden) -> Hidden:
    """Returns the hidden state after an iteration: failed checks note which one it was, and the next one is counted."""
    if ASSERTIONS in after:
        after = {**after, ASSERTIONS: stamped(before[ASSERTIONS], after[ASSERTIONS], before[ITERATION])}
    if ITERATION in after:
        after = {**after, ITERATION: after[ITERATION] + 1}
    return after


def _element(array: jax.Array, index: jax.Array) -> jax.Array:
    return lax.dynamic_index_in_dim(array, index, 0, keepdims=False)


def _put(buffers: Arrays, element: Arrays, index: jax.Array) -> Arrays:
    return tuple(lax.dynamic_update_index_in_dim(b, e, index, 0) for b, e in zip(buffers, element, strict=True))
