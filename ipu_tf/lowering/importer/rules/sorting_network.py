"""Sorts by any comparator with a bitonic sorting network of whole-array steps.

For eight elements; in a step each element meets the one whose place differs in one bit (the distance):

    run       2   4      8
    distance  1   2  1   4  2  1

A comparator that is no order (one that NaN makes inconsistent) gives some permutation of the elements, never
loses one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Less = Callable[[Sequence[jax.Array], Sequence[jax.Array]], jax.Array]
"""Whether the elements of the first arrays come before those of the second, element by element."""


def network_sort(less: Less, operands: Sequence[jax.Array], dimension: int) -> list[jax.Array]:
    """Sorts the operands together along a dimension; always stable.

    Args:
        less: the comparator.
        operands: arrays of one shape.
        dimension: along which to sort.
    """
    length = operands[0].shape[dimension]
    places = np.arange(1 << max(length - 1, 0).bit_length(), dtype=np.int32)
    # Places past the end repeat the last element; their index keeps them behind all real ones.
    rows = [
        jnp.take(jnp.moveaxis(operand, dimension, -1), places.clip(max=length - 1), axis=-1) for operand in operands
    ]
    index = jnp.broadcast_to(places, rows[0].shape)
    runs, distances = _schedule(places.size)

    def step(number: jax.Array, arrays: list[jax.Array]) -> list[jax.Array]:
        return _exchanged(less, length, arrays, runs[number], distances[number])

    *rows, _ = lax.fori_loop(0, runs.size, step, [*rows, index])
    return [jnp.moveaxis(row[..., :length], -1, dimension) for row in rows]


def _schedule(places: int) -> tuple[jax.Array, jax.Array]:
    """Lists the run length and partner distance of every step."""
    bits = places.bit_length() - 1
    steps = [(2 << run, 1 << bit) for run in range(bits) for bit in range(run, -1, -1)]
    runs, distances = np.array(steps, np.int32).reshape(-1, 2).T
    return jnp.asarray(runs), jnp.asarray(distances)


def _exchanged(
    less: Less, length: int, arrays: list[jax.Array], run: jax.Array, distance: jax.Array
) -> list[jax.Array]:
    """Runs one compare-exchange step."""
    place = jnp.arange(arrays[0].shape[-1], dtype=jnp.int32)
    first = [jnp.take(array, place & ~distance, axis=-1) for array in arrays]
    second = [jnp.take(array, place | distance, axis=-1) for array in arrays]
    backwards = (place & run) != 0
    trade = _precedes(less, length, second, first) != backwards
    take_second = trade != ((place & distance) != 0)
    return [jnp.where(take_second, b, a) for a, b in zip(first, second, strict=True)]


def _precedes(less: Less, length: int, left: Sequence[jax.Array], right: Sequence[jax.Array]) -> jax.Array:
    """Compares by the comparator, ties by original index (the last array): a strict order."""
    (*lefts, left_index), (*rights, right_index) = left, right
    real = (left_index < length) & (right_index < length)
    before, after = less(lefts, rights) & real, less(rights, lefts) & real
    return before | (~after & (left_index < right_index))
