"""`reduce_sum`: sums over axes, by the native kernel, or as matrix products with ones, where those are faster.

    sum over n of x[m, n, k]   =   x[m, n, k] . ones[n]        in blocks of about sqrt(n) terms

XLA:CPU's own sums over all dimensions but the last take eight times as long as the product, and those over the last
twice as long: they are loops over one element after the other on one core. Batch normalisation and the gradients of
biases consist of such sums. The native kernel adds nothing to the time that XLA takes to compile a program; XLA makes
code for each product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.sums import MiddleSum, middle_sum

_LEAST, _MOST = 2**14, 2**24
"""Elements of an operand: below, there is nothing to gain; above, it should not be in memory for the product's sake."""
_TERMS, _COLUMNS = 32, 16
"""Terms of a sum, and sums that lie side by side, from which on the product is faster."""


def as_product(shape: Sequence[int], dtype: np.dtype, axes: Sequence[int]) -> bool:
    """Returns whether `reduce_sum` computes the sum of such an operand by the kernel, or as a matrix product."""
    if dtype != np.float32 or not axes or not _LEAST <= math.prod(shape) <= _MOST or jax.default_backend() != "cpu":
        return False
    wanted = MiddleSum.of(shape, axes)
    if wanted is None or wanted.terms < _TERMS:
        return False
    return wanted.before * wanted.after > 1 and (wanted.after == 1 or wanted.after >= _COLUMNS)


def reduce_sum(operand: jax.Array, axes: Sequence[int]) -> jax.Array:
    """Sums over `axes`, by the faster way.

    Args:
        operand: of any shape and dtype.
        axes: not negative, each once.

    Returns:
        An array of the operand's dtype, without those axes.
    """
    if not as_product(operand.shape, operand.dtype, axes):
        return lax.reduce_sum(operand, tuple(axes))
    return _of_replicas(tuple(axes))(operand)


def _of_replicas(axes: tuple[int, ...]) -> Any:
    """Computes the sum; under `vmap`, one sum for all replicas, whose axis is kept."""

    @custom_vmap
    def total(operand: jax.Array) -> jax.Array:
        return _native(operand, axes) if library.usable() else _product(operand, axes)

    @total.def_vmap
    def of_all(size: int, batched: Sequence[bool], operand: jax.Array) -> tuple[jax.Array, bool]:
        return reduce_sum(operand, tuple(axis + 1 for axis in axes)), True

    return total


def _native(operand: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    wanted = MiddleSum.of(operand.shape, axes)
    assert wanted is not None
    total = middle_sum(lax.reshape(operand, wanted.shape))
    return lax.reshape(total, tuple(size for axis, size in enumerate(operand.shape) if axis not in axes))


def _product(operand: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Computes the sum as products with ones, first over blocks of about sqrt(terms) terms and then over the blocks.

    One product over all the terms adds them up one after the other, and its rounding error grows with their number;
    with blocks it grows with the square root of that.
    """
    wanted = MiddleSum.of(operand.shape, axes)
    assert wanted is not None
    kept = tuple(size for axis, size in enumerate(operand.shape) if axis not in axes)
    total, taken = None, 0
    for blocks, size in _blocks(wanted.terms):
        part = lax.reshape(operand, (wanted.before, wanted.terms, wanted.after))
        if blocks * size < wanted.terms:
            part = lax.slice_in_dim(part, taken, taken + blocks * size, axis=1)
        taken += blocks * size
        first = _sum_of(part, wanted.before, blocks, size * wanted.after)
        value = _sum_of(first, wanted.before, size, wanted.after)
        total = value if total is None else total + value
    assert total is not None
    return lax.reshape(total, kept)


def _blocks(terms: int) -> tuple[tuple[int, int], ...]:
    """Returns (blocks, their size) that together have all the terms: one pair if some size near the root divides them.

    Example:
        >>> _blocks(4096), _blocks(4099)
        (((64, 64),), ((64, 64), (1, 3)))
    """
    root = math.isqrt(terms)
    size = next((size for size in range(root, root // 4, -1) if terms % size == 0), root)
    whole = terms // size
    return ((whole, size),) if whole * size == terms else ((whole, size), (1, terms - whole * size))


def _sum_of(operand: jax.Array, before: int, terms: int, after: int) -> jax.Array:
    """Sums over the middle axis of an array viewed as `[before, terms, after]`: a product with ones."""
    if terms == 1:
        return lax.reshape(operand, (before, after))
    if after == 1:
        return lax.reshape(operand, (before, terms)) @ jnp.ones((terms, 1), operand.dtype)
    ones = jnp.ones((before, terms), operand.dtype)
    matrices = lax.reshape(operand, (before, terms, after))
    return lax.dot_general(ones, matrices, (((1,), (1,)), ((0,), (0,))))
