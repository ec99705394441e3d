"""Sums a function over blocks of the leading axis, so that intermediate results fit into the CPU's cache."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def block_size(rows: int, most: int) -> int:
    """Returns a block size from `most / 2` to `most` rows, a divisor of `rows` if there is one.

    Example:
        >>> block_size(64, 5), block_size(61, 5), block_size(3, 5), block_size(3, 0)
        (4, 5, 3, 1)
    """
    most = max(1, min(rows, most))
    return next((size for size in range(most, most // 2, -1) if rows % size == 0), most)


def sum_over_blocks(function: Callable[..., jax.Array], arrays: tuple[jax.Array, ...], size: int) -> jax.Array:
    """Sums `function` over blocks of at most `size` rows of `arrays`, which have equally many, at least one.

    Example:
        >>> sum_over_blocks(lambda part: part.sum(), (jnp.arange(7.0),), 3)
        Array(21., dtype=float32)
    """
    return sum_over_blocks_in(lambda *blocks: (), lambda room, *blocks: (function(*blocks), room), arrays, size)


def sum_over_blocks_in(
    buffers: Callable[..., Any],
    function: Callable[..., tuple[jax.Array, Any]],
    arrays: tuple[jax.Array, ...],
    size: int,
) -> jax.Array:
    """Sums a function over blocks with reused work buffers: the function maps (buffers, blocks) to (sum, buffers).

    Args:
        buffers: makes room for blocks of arrays.
        function: takes the room and the blocks.
        arrays: which have equally many rows, not none.
        size: of the blocks, at most.
    """
    loops, odd = divmod(arrays[0].shape[0], size)

    def alone(*blocks: jax.Array) -> jax.Array:
        return function(buffers(*blocks), *blocks)[0]

    def add(index: jax.Array, state: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        total, room = state
        more, room = function(room, *(lax.dynamic_slice_in_dim(a, odd + index * size, size) for a in arrays))
        return total + more, room

    if arrays[0].shape[0] <= size:
        return alone(*arrays)
    block = tuple(array[:size] for array in arrays)
    first = alone(*(array[:odd] for array in arrays)) if odd else zeros_like_result(alone, block)
    return lax.fori_loop(0, loops, add, (first, buffers(*block)))[0]


def zeros_like_result(function: Callable[..., jax.Array], arrays: tuple[jax.Array, ...]) -> jax.Array:
    """Returns zeros of the type of the function's results, with their varying axes inside of `shard_map`.

    A loop must return the type it starts from. So the zeros are chosen, by a constant condition that the
    compiler takes away, over something that has this type.
    """
    result = jax.eval_shape(function, *arrays)
    either = functools.reduce(operator.mul, (array.ravel()[0].astype(result.dtype) for array in arrays))
    return jnp.where(jnp.zeros(result.shape, bool), either, jnp.zeros((), result.dtype))
