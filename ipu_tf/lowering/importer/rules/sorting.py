"""Rule for `stablehlo.sort`, with any comparator: by key, by JAX's top-k, or by a sorting network.

The op `chlo.top_k` is in `special_functions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.lowering.importer.rules.attributes import flag
from ipu_tf.lowering.importer.rules.regions import on_arrays
from ipu_tf.lowering.importer.rules.registry import Importer, rule
from ipu_tf.lowering.importer.rules.sorting_network import network_sort
from ipu_tf.lowering.importer.rules.total_order import from_ordered_bits, to_ordered_bits, with_equal_zeros
from ipu_tf.lowering.stablehlo.op import Op


@dataclasses.dataclass(frozen=True)
class _Order:
    """Sort order of a comparator that compares one operand with `<` or `>`.

    Attributes:
        key: the operand's index.
        descending: whether the comparator is `>`.
        total: whether it tells -0 from +0 and places NaN by its sign.
    """

    key: int
    descending: bool
    total: bool


@rule("stablehlo.sort")
def _sort(importer: Importer, op: Op, *operands: jax.Array) -> list[jax.Array]:
    dimension, block = op.integer("dimension", -1) % operands[0].ndim, op.regions[0]
    if operands[0].shape[dimension] < 2:
        return list(operands)
    order = _order(block)
    if order is None or jnp.issubdtype(operands[order.key].dtype, jnp.complexfloating):
        compare = on_arrays(importer, block)
        return network_sort(lambda a, b: compare(*_alternating(a, b))[0], operands, dimension)
    floating = jnp.issubdtype(operands[order.key].dtype, jnp.floating)
    by_place = order.total and floating and _others_are_needed(op, order)
    used = _used(op, dimension)
    if used < operands[0].shape[dimension] and _is_top_k(op, order, dimension):
        return _top_k(operands, dimension, used, by_place)
    if by_place:
        return _sorted_by_place(order, operands, dimension)
    return _sorted_by_key(order, operands, dimension, flag(op, "is_stable"))


def _alternating(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """Interleaves a comparator's arguments: both candidates of the first operand, then of the second, and so on."""
    return [value for pair in zip(left, right, strict=True) for value in pair]


def _order(block: Any) -> _Order | None:
    operations = [operation.operation for operation in block.operations]
    if len(operations) != 2 or operations[0].name != "stablehlo.compare":
        return None
    compare, arguments = Op(operations[0]), list(block.arguments)
    direction = compare.word("comparison_direction")
    left, right = (arguments.index(value) for value in operations[0].operands)
    if direction not in ("LT", "GT") or {left, right} != {left // 2 * 2, left // 2 * 2 + 1}:
        return None
    descending = (direction == "GT") != (left > right)
    total = compare.has("compare_type") and compare.word("compare_type") == "TOTALORDER"
    return _Order(left // 2, descending, total)


def _others_are_needed(op: Op, order: _Order) -> bool:
    """Returns whether a program needs more of a sort than the sorted keys, as their places."""
    values = [value for place, value in enumerate(op.operation.results) if place != order.key]
    users: set[Any] = set()
    while values:
        for use in values.pop().uses:
            user = use.owner.operation
            if not user.results or user.regions or user.name in ("func.call", "stablehlo.custom_call"):
                return True
            if user not in users:
                users.add(user)
                values.extend(user.results)
    return False


def _sorted_by_place(order: _Order, operands: Sequence[jax.Array], dimension: int) -> list[jax.Array]:
    """Sorts as TensorFlow's CPU kernels do, for which -0 is no less than +0: the one that comes first stays first."""
    bits = with_equal_zeros(to_ordered_bits(operands[order.key]))
    key = lax.bitwise_not(bits) if order.descending else bits
    return list(lax.sort([key, *operands], dimension, is_stable=True, num_keys=1)[1:])


def _sorted_by_key(order: _Order, operands: Sequence[jax.Array], dimension: int, is_stable: bool) -> list[jax.Array]:
    key = operands[order.key]
    others = [*operands[: order.key], *operands[order.key + 1 :]]
    found, *others = lax.sort([_ascending(key, order), *others], dimension, is_stable, num_keys=1)
    others.insert(order.key, _restored(found, key, order))
    return others


def _ascending(key: jax.Array, order: _Order) -> jax.Array:
    """Converts an operand to a key whose ascending order is the wanted order; keys are unique for each value."""
    floating = jnp.issubdtype(key.dtype, jnp.floating)
    if floating and not order.total:
        return lax.neg(key) if order.descending else key
    bits = to_ordered_bits(key) if floating else key
    return lax.bitwise_not(bits) if order.descending else bits


def _restored(found: jax.Array, key: jax.Array, order: _Order) -> jax.Array:
    floating = jnp.issubdtype(key.dtype, jnp.floating)
    if floating and not order.total:
        return lax.neg(found) if order.descending else found
    bits = lax.bitwise_not(found) if order.descending else found
    return from_ordered_bits(bits, key.dtype) if floating else bits


def _used(op: Op, dimension: int) -> int:
    """Returns how many of the first elements the program uses, if it only slices the results."""
    uses = [Op(use.owner.operation) for result in op.operation.results for use in result.uses]
    slices = [use for use in uses if use.name == "stablehlo.slice" and set(use.integers("strides")) == {1}]
    if len(slices) < len(uses) or any(use.integers("start_indices")[dimension] for use in slices):
        return op.result.shape[dimension]
    return max((use.integers("limit_indices")[dimension] for use in slices), default=0)


def _is_top_k(op: Op, order: _Order, dimension: int) -> bool:
    """Tests whether a sort is a descending sort of `float32` numbers, with at most their indices as other operand."""
    key, *others = op.operation.operands
    if order != _Order(0, descending=True, total=True) or op.result.dtype != jnp.float32:
        return False
    return not others or (len(others) == 1 and _is_iota(others[0].owner, dimension))


def _is_iota(owner: Any, dimension: int) -> bool:
    return getattr(owner, "name", "") == "stablehlo.iota" and Op(owner).integer("iota_dimension") == dimension


def _top_k(operands: Sequence[jax.Array], dimension: int, count: int, by_place: bool) -> list[jax.Array]:
    """Computes the first elements of the sorted operands by `top_k`, padded with zeros that are sliced off later.

    XLA finds some elements of each row a hundred times faster than it sorts long rows.
    """
    values, places = (_greatest if by_place else lax.top_k)(operands[0], count, axis=dimension)
    found = [values, *(lax.convert_element_type(places, other.dtype) for other in operands[1:])]
    missing = operands[0].shape[dimension] - count
    edges = [(0, missing if axis == dimension else 0, 0) for axis in range(values.ndim)]
    return [lax.pad(part, np.zeros((), part.dtype), edges) for part in found]


def _greatest(numbers: jax.Array, count: int, axis: int) -> tuple[jax.Array, jax.Array]:
    """Computes what `lax.top_k` does, but -0 is no less than +0, as in TensorFlow's CPU kernel."""
    zeros = lax.full_like(numbers, 0)
    _, places = lax.top_k(lax.select(lax.eq(numbers, zeros), zeros, numbers), count, axis=axis)
    return jnp.take_along_axis(numbers, places, axis), places
