"""Sums over the leading axis, a few rows at a time, so that what is built for them stays in the cache."""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax import lax


def sum_over_chunks(
    function: Callable[..., jax.Array], arrays: tuple[jax.Array, ...], size: int
) -> jax.Array:
    """The sum of `function` over chunks of at most `size` rows of `arrays`, which have equally many.

    The first chunk takes the odd rows. It is computed outside of the loop and starts the sum, which so has
    the type the loop's body gives it, inside `shard_map` too.

    Example:
        >>> import jax.numpy as jnp
        >>> sum_over_chunks(lambda part: part.sum(), (jnp.arange(7.0),), 3)
        Array(21., dtype=float32)
    """
    rows = arrays[0].shape[0]
    loops = max(0, -(-rows // size) - 1)
    odd = rows - loops * size

    def add(index: jax.Array, total: jax.Array) -> jax.Array:
        return total + function(*(lax.dynamic_slice_in_dim(a, odd + index * size, size) for a in arrays))

    first = function(*(array[:odd] for array in arrays))
    return lax.fori_loop(0, loops, add, first) if loops else first
