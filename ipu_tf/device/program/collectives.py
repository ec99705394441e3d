"""Collectives over replicas: all-reduce, all-gather, all-to-all, reduce-scatter; reductions in replica order.

    all_reduce  add        0: a        all_gather     0: [a]      all_to_all     0: [a0 a1]
                           1: b                       1: [b]                     1: [b0 b1]
             0 and 1: a + b     0 and 1: [a, b]            0: [a0 b0]   1: [a1 b1]

With one replica, sums are the value itself, and gathers have one row.

`replicas` is always the number of this instance's. In a program of several instances the replicas of all take part, in
the order of the instances: those of one instance are combined first, then the instances' results, in memory that they
share or by XLA's own collectives. `total` says how many there are.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device.instances.sums import (
    gather_over_instances,
    max_over_instances,
    min_over_instances,
    sum_over_instances,
)
from ipu_tf.device.program.replicas import AXIS, INSTANCES, has_axis

_OVER_ROWS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "ADD": lambda rows: _added(rows),
    "MUL": lambda rows: jnp.prod(rows, 0, dtype=rows.dtype),
    "MIN": lambda rows: jnp.min(rows, 0),
    "MAX": lambda rows: jnp.max(rows, 0),
    "LOGICAL_AND": lambda rows: jnp.all(rows, 0).astype(rows.dtype),
    "LOGICAL_OR": lambda rows: jnp.any(rows, 0).astype(rows.dtype),
    "SQUARE_ADD": lambda rows: _added(rows * rows),
    "MEAN": lambda rows: _mean(rows),
}
_OF_INSTANCES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "ADD": lambda rows: _over_instances(rows, _wide_sum(rows)),
    "SQUARE_ADD": lambda rows: _over_instances(rows, _wide_sum(rows * rows)),
    "MEAN": lambda rows: _over_instances(rows, _wide_sum(rows / jnp.asarray(total(rows.shape[0]), rows.dtype))),
    "MIN": lambda rows: min_over_instances(jnp.min(rows, 0)),
    "MAX": lambda rows: max_over_instances(jnp.max(rows, 0)),
}
"""From the rows of this instance's replicas to what those of all instances give."""
OPERATIONS = (*_OVER_ROWS, "LOCAL")
"""Operators of `all_reduce` and `reduce_scatter`. LOCAL leaves each replica its own value."""


def total(replicas: int) -> int:
    """Returns how many replicas all instances have."""
    return replicas * _instances()


def replica_index(replicas: int) -> jax.Array:
    """Returns the index of this replica among those of all instances, `int32[]`."""
    own = lax.axis_index(AXIS) if replicas > 1 else 0
    before = lax.axis_index(INSTANCES) * replicas if _instances() > 1 else 0
    return jnp.asarray(before + own, jnp.int32)


def all_gather(value: jax.Array, replicas: int, group: int | None = None) -> jax.Array:
    """Gathers the values of all replicas, or of this one's group of `group` consecutive ones: `[group, *shape]`."""
    rows = lax.all_gather(value, AXIS) if replicas > 1 else value[None]
    here = group is not None and replicas % group == 0
    if _instances() > 1 and not here:
        rows = gather_over_instances(rows, tiled=True)
    if group is None or group == rows.shape[0]:
        return rows
    first = replica_index(replicas) // group * group
    return lax.dynamic_slice_in_dim(rows, first % rows.shape[0], group, 0)


def all_reduce(value: jax.Array, operation: str, replicas: int, group: int | None = None) -> jax.Array:
    """Reduces the replicas' values; the result is the same on every replica (of the group).

    Args:
        value: this replica's value.
        operation: one of `OPERATIONS`.
        replicas: how many there are.
        group: how many consecutive replicas combine theirs; all by default.
    """
    everyone = total(replicas)
    if operation == "LOCAL" or (everyone == 1 and operation != "SQUARE_ADD"):
        return value
    if _instances() > 1 and operation in _OF_INSTANCES and group in (None, everyone):
        return _OF_INSTANCES[operation](all_gather(value, replicas, replicas))
    return _OVER_ROWS[operation](all_gather(value, replicas, group))


def all_reduce_each(
    values: Sequence[jax.Array], operation: str, replicas: int, group: int | None = None
) -> list[jax.Array]:
    """Reduces several values, each as `all_reduce` does; instances exchange all sums of one dtype at once.

    A collective between processes costs each of them about a millisecond of the processor, whatever its size.

    Args:
        values: this replica's.
        operation: as for `all_reduce`, as are `replicas` and `group`.
    """
    if operation != "ADD" or _instances() == 1 or group not in (None, total(replicas)):
        return [all_reduce(value, operation, replicas, group) for value in values]
    summed = [_wide_sum(all_gather(value, replicas, replicas)) for value in values]
    for dtype in dict.fromkeys(own.dtype for own in summed):  # in one order in all instances
        places = [place for place, own in enumerate(summed) if own.dtype == dtype]
        together = sum_over_instances(jnp.concatenate([summed[place].reshape(-1) for place in places]))
        parts = jnp.split(together, np.cumsum([summed[place].size for place in places[:-1]]))
        for place, part in zip(places, parts, strict=True):
            summed[place] = part.reshape(summed[place].shape)
    return [own.astype(value.dtype) for own, value in zip(summed, values, strict=True)]


def all_to_all(value: jax.Array, split: int, concat: int, replicas: int) -> jax.Array:
    """Splits a value along `split`, sends part `i` to replica `i`, and concatenates received parts along `concat`."""
    everyone = total(replicas)
    if everyone == 1:
        return value
    if everyone == replicas:
        return lax.all_to_all(value, AXIS, split, concat, tiled=True)
    length = value.shape[split] // everyone
    own = replica_index(replicas) * length
    parts = lax.dynamic_slice_in_dim(all_gather(value, replicas), own, length, split + 1)
    return jnp.concatenate(list(parts), concat)


def reduce_scatter(value: jax.Array, operation: str, replicas: int) -> jax.Array:
    """Reduces the replicas' values; replica `i` gets the `i`-th part of the result.

    Args:
        value: `[n]`; filled up with zeros to a multiple of the replicas of all instances.
        operation: one of `OPERATIONS`.
        replicas: how many there are.

    Returns:
        `[ceil(n / replicas)]`, of the replicas of all instances.
    """
    everyone = total(replicas)
    length = -(-value.shape[0] // everyone)
    filled = jnp.pad(value, (0, length * everyone - value.shape[0]))
    combined = all_reduce(filled, operation, replicas)
    return lax.dynamic_slice_in_dim(combined, replica_index(replicas) * length, length, 0)


def _instances() -> int:
    """Returns how many instances run the program that is traced now."""
    return lax.axis_size(INSTANCES) if has_axis(INSTANCES) else 1


def _over_instances(rows: jax.Array, own: jax.Array) -> jax.Array:
    """Sums what the instances have summed of their rows, and returns it in the rows' dtype."""
    return sum_over_instances(own).astype(rows.dtype)


def _mean(rows: jax.Array) -> jax.Array:
    """Averages over the replicas; divides before adding, so that 16-bit numbers do not overflow."""
    return _added(rows / jnp.asarray(rows.shape[0], rows.dtype))


def _added(rows: jax.Array) -> jax.Array:
    """Sums over the replicas, in their order."""
    return _wide_sum(rows).astype(rows.dtype)


def _wide_sum(rows: jax.Array) -> jax.Array:
    """Sums over the replicas, in their order. 16-bit numbers are summed in 32 bits, which the sum has.

    XLA:CPU is twenty times slower at a sum over the first axis than at adding its rows, and it computes what is added
    once for each replica that uses it: a quarter of the time of 16 replicas. A product with ones is computed once.
    """
    replicas, *shape = rows.shape
    if not jnp.issubdtype(rows.dtype, jnp.floating):
        return functools.reduce(operator.add, (rows[replica] for replica in range(replicas)))
    wide = rows.astype(jnp.promote_types(rows.dtype, jnp.float32)).reshape(replicas, math.prod(shape))
    added = lax.dot(jnp.ones(replicas, wide.dtype), wide, precision=lax.Precision.HIGHEST)
    return added.reshape(shape)
