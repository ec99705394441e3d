"""Collectives over replicas: all-reduce, all-gather, all-to-all, reduce-scatter; reductions in replica order.

    all_reduce  add        0: a        all_gather     0: [a]      all_to_all     0: [a0 a1]
                           1: b                       1: [b]                     1: [b0 b1]
             0 and 1: a + b     0 and 1: [a, b]            0: [a0 b0]   1: [a1 b1]

With one replica, sums are the value itself, and gathers have one row.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.program.replicas import AXIS

_OVER_ROWS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "ADD": lambda rows: _added(rows),
    "MUL": lambda rows: jnp.prod(rows, 0, dtype=rows.dtype),
    "MIN": lambda rows: jnp.min(rows, 0),
    "MAX": lambda rows: jnp.max(rows, 0),
    "LOGICAL_AND": lambda rows: jnp.all(rows, 0),
    "LOGICAL_OR": lambda rows: jnp.any(rows, 0),
    "SQUARE_ADD": lambda rows: _added(rows * rows),
    "MEAN": lambda rows: _mean(rows),
}
OPERATIONS = (*_OVER_ROWS, "LOCAL")
"""Operators of `all_reduce` and `reduce_scatter`. LOCAL leaves each replica its own value."""


def replica_index(replicas: int) -> jax.Array:
    """Returns the index of this replica, `int32[]`."""
    return jnp.asarray(lax.axis_index(AXIS), jnp.int32) if replicas > 1 else jnp.int32(0)


def all_gather(value: jax.Array, replicas: int, group: int | None = None) -> jax.Array:
    """Gathers the values of all replicas, or of this one's group of `group` consecutive ones: `[group, *shape]`."""
    if replicas == 1:
        return value[None]
    rows = lax.all_gather(value, AXIS)
    if group is None or group == replicas:
        return rows
    first = replica_index(replicas) // group * group
    return lax.dynamic_slice_in_dim(rows, first, group, 0)


def all_reduce(value: jax.Array, operation: str, replicas: int, group: int | None = None) -> jax.Array:
    """Reduces the replicas' values; the result is the same on every replica (of the group).

    Args:
        value: this replica's value.
        operation: one of `OPERATIONS`.
        replicas: how many there are.
        group: how many consecutive replicas combine theirs; all by default.
    """
    if operation == "LOCAL" or (replicas == 1 and operation != "SQUARE_ADD"):
        return value
    return _OVER_ROWS[operation](all_gather(value, replicas, group))


def all_to_all(value: jax.Array, split: int, concat: int, replicas: int) -> jax.Array:
    """Splits a value along `split`, sends part `i` to replica `i`, and concatenates received parts along `concat`."""
    if replicas == 1:
        return value
    return lax.all_to_all(value, AXIS, split, concat, tiled=True)


def reduce_scatter(value: jax.Array, operation: str, replicas: int) -> jax.Array:
    """Reduces the replicas' values; replica `i` gets the `i`-th part of the result.

    Args:
        value: `[n]`; filled up with zeros to a multiple of the replicas.
        operation: one of `OPERATIONS`.
        replicas: how many there are.

    Returns:
        `[ceil(n / replicas)]`.
    """
    length = -(-value.shape[0] // replicas)
    filled = jnp.pad(value, (0, length * replicas - value.shape[0]))
    combined = all_reduce(filled, operation, replicas)
    return lax.dynamic_slice_in_dim(combined, replica_index(replicas) * length, length, 0)


def _mean(rows: jax.Array) -> jax.Array:
    """Averages over the replicas; divides before adding, so that 16-bit numbers do not overflow."""
    return _added(rows / jnp.asarray(rows.shape[0], rows.dtype))


def _added(rows: jax.Array) -> jax.Array:
    """Sums over the replicas, in their order. 16-bit numbers are summed in 32 bits.

    XLA:CPU is twenty times slower at a sum over the first axis than at adding its rows, and it computes what is added
    once for each replica that uses it: a quarter of the time of 16 replicas. A product with ones is computed once.
    """
    replicas, *shape = rows.shape
    if not jnp.issubdtype(rows.dtype, jnp.floating):
        return functools.reduce(operator.add, (rows[replica] for replica in range(replicas)))
    wide = rows.astype(jnp.promote_types(rows.dtype, jnp.float32)).reshape(replicas, math.prod(shape))
    added = lax.dot(jnp.ones(replicas, wide.dtype), wide, precision=lax.Precision.HIGHEST)
    return added.reshape(shape).astype(rows.dtype)
