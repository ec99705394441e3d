"""`reduce_sum`: sums over axes, as matrix products with ones where those are faster.

    sum over n of x[m, n, k]   =   x[m, n, k] . ones[n]

XLA:CPU's own sums over all dimensions but the last take eight times as long as the product, and those over the last
twice as long: they are loops over one element after the other on one core. Batch normalisation and the gradients of
biases consist of such sums.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

_LEAST, _MOST = 2**14, 2**24
"""Elements of an operand: below, there is nothing to gain; above, it should not be in memory for the product's sake."""
_TERMS, _COLUMNS = 32, 16
"""Terms of a sum, and sums that lie side by side, from which on the product is faster."""


@dataclasses.dataclass(frozen=True)
class _Sum:
    """Sum over the middle axis of `[before, terms, after]`."""

    before: int
    terms: int
    after: int

    @classmethod
    def of(cls, shape: Sequence[int], axes: Sequence[int]) -> _Sum | None:
        """Returns the sum over these axes; None unless they are adjacent."""
        first, last = min(axes), max(axes) + 1
        if last - first != len(axes):
            return None
        return cls(math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:]))


def as_product(shape: Sequence[int], dtype: np.dtype, axes: Sequence[int]) -> bool:
    """Returns whether `reduce_sum` computes the sum of such an operand as a matrix product."""
    if dtype != np.float32 or not axes or not _LEAST <= math.prod(shape) <= _MOST or jax.default_backend() != "cpu":
        return False
    wanted = _Sum.of(shape, axes)
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
    """Computes the product; under `vmap`, one product for all replicas, whose axis is kept."""

    @custom_vmap
    def total(operand: jax.Array) -> jax.Array:
        return _product(operand, axes)

    @total.def_vmap
    def of_all(size: int, batched: Sequence[bool], operand: jax.Array) -> tuple[jax.Array, bool]:
        return reduce_sum(operand, tuple(axis + 1 for axis in axes)), True

    return total


def _product(operand: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    wanted = _Sum.of(operand.shape, axes)
    assert wanted is not None
    kept = tuple(size for axis, size in enumerate(operand.shape) if axis not in axes)
    if wanted.after == 1:
        rows = lax.reshape(operand, (wanted.before, wanted.terms))
        return lax.reshape(rows @ jnp.ones(wanted.terms, operand.dtype), kept)
    matrices = lax.reshape(operand, (wanted.before, wanted.terms, wanted.after))
    ones = jnp.ones((wanted.before, wanted.terms), operand.dtype)
    return lax.reshape(lax.dot_general(ones, matrices, (((1,), (1,)), ((0,), (0,)))), kept)
