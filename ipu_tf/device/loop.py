"""A streamed loop: the device runs a chunk of iterations over staged elements while the host stages the next.

    host     stage 0 | stage 1 | stage 2 | ...
    device           | chunk 0 | chunk 1 | chunk 2 ...

One executable serves every chunk of a loop: how many iterations a chunk runs is an argument, not a constant, so
compile time does not grow with the length of the loop, and neither does memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.program import Arrays, Hidden, LoopPart, Rows


def chunk_function(part: LoopPart, last_only: frozenset[str], capacity: int) -> Any:
    """The function that runs up to `capacity` iterations of a loop.

    Args:
        part: the loop.
        last_only: outfeeds of which only the newest row is kept.
        capacity: length of the staged arrays and of the outfeeds' buffers.

    Returns:
        `run(carry, constants, hidden, staged, count)`, to be compiled with the carry donated. It gives the final
        carry, hidden state, outfeed buffers, the number of iterations run, and whether the loop would go on.
    """

    def run(
        carry: Arrays, constants: Arrays, hidden: Hidden, staged: Mapping[str, Arrays], count: Any
    ) -> tuple[Arrays, Hidden, Rows, jax.Array, jax.Array]:
        counted = part.trip_count is not None

        def condition(state: Any) -> jax.Array:
            index, carry = state[0], state[1]
            more = index < count
            return more if counted else more & part.goes_on(carry, constants)

        def body(state: Any) -> Any:
            index, carry, hidden, buffers = state
            elements = {name: tuple(_row(a, index) for a in arrays) for name, arrays in staged.items()}
            carry, hidden, rows = part.step(carry, constants, hidden, elements)
            buffers = {
                name: rows[name] if name in last_only else _put(buffers[name], rows[name], index) for name in buffers
            }
            return index + 1, carry, hidden, buffers

        start = (jnp.int32(0), carry, hidden, _buffers(part, last_only, capacity))
        index, carry, hidden, buffers = lax.while_loop(condition, body, start)
        return carry, hidden, buffers, index, jnp.reshape(part.goes_on(carry, constants), ())

    return run


def _buffers(part: LoopPart, last_only: frozenset[str], capacity: int) -> Rows:
    return {
        name: tuple(jnp.zeros(t.shape if name in last_only else (capacity, *t.shape), t.dtype) for t in types)
        for name, types in part.outfeeds.items()
    }


def _row(array: jax.Array, index: jax.Array) -> jax.Array:
    return lax.dynamic_index_in_dim(array, index, 0, keepdims=False)


def _put(buffers: Arrays, rows: Arrays, index: jax.Array) -> Arrays:
    return tuple(lax.dynamic_update_index_in_dim(b, r, index, 0) for b, r in zip(buffers, rows, strict=True))
