"""Rules for scatter. Updates out of bounds are dropped, as in XLA."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.lowering.importer.rules.attributes import flag
from ipu_tf.lowering.importer.rules.gather import with_last_index_vector
from ipu_tf.lowering.importer.rules.regions import SECOND, combiner, on_arrays
from ipu_tf.lowering.importer.rules.registry import Importer, rule
from ipu_tf.lowering.jax.jax_private import stablehlo
from ipu_tf.lowering.stablehlo.op import Op

_COMBINED: dict[str | None, Callable[..., jax.Array]] = {
    "stablehlo.add": lax.scatter_add,
    "stablehlo.multiply": lax.scatter_mul,
    "stablehlo.minimum": lax.scatter_min,
    "stablehlo.maximum": lax.scatter_max,
    SECOND: lax.scatter,
}


@rule("stablehlo.scatter")
def _scatter(importer: Importer, op: Op, *values: jax.Array) -> list[jax.Array]:
    count = len(values) // 2
    operands, indices, updates = values[:count], values[count], values[count + 1 :]
    dimensions, indices = _dimensions(op, indices)
    scatter = _COMBINED.get(combiner(op.regions[0])) if count == 1 else None
    if count == 1 and _subtracts(op.regions[0]):
        scatter, updates = lax.scatter_add, (lax.neg(updates[0]),)
    if scatter is None:
        return _one_by_one(on_arrays(importer, op.regions[0]), dimensions, operands, indices, updates)
    flags = {name: flag(op, name) for name in ("indices_are_sorted", "unique_indices")}
    drop = lax.GatherScatterMode.FILL_OR_DROP
    return [scatter(operands[0], indices, updates[0], dimensions, mode=drop, **flags)]


def _subtracts(block: Any) -> bool:
    """Returns whether a region subtracts its second argument from its first, as `tf.tensor_scatter_nd_sub` does."""
    operations, arguments = [each.operation for each in block.operations], list(block.arguments)
    first, returned = operations[0], list(operations[-1].operands)
    is_one = len(operations) == 2 and first.name == "stablehlo.subtract" and returned == list(first.results)
    return is_one and list(first.operands) == arguments


def _dimensions(op: Op, indices: jax.Array) -> tuple[lax.ScatterDimensionNumbers, jax.Array]:
    numbers = stablehlo.ScatterDimensionNumbers(op.attribute("scatter_dimension_numbers"))
    indices, batching = with_last_index_vector(indices, numbers.index_vector_dim, numbers.scatter_indices_batching_dims)
    dimensions = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(numbers.update_window_dims),
        inserted_window_dims=tuple(numbers.inserted_window_dims),
        scatter_dims_to_operand_dims=tuple(numbers.scattered_dims_to_operand_dims),
        operand_batching_dims=tuple(numbers.input_batching_dims),
        scatter_indices_batching_dims=batching,
    )
    return dimensions, indices


def _one_by_one(
    combine: Callable[..., list[jax.Array]],
    dimensions: lax.ScatterDimensionNumbers,
    operands: tuple[jax.Array, ...],
    indices: jax.Array,
    updates: tuple[jax.Array, ...],
) -> list[jax.Array]:
    """Scatters window by window, in the order of the indices, for any region and number of operands.

    The region may not be associative or commutative, so that order is part of the meaning.
    """
    starts = _starts(dimensions, operands[0].ndim, indices)
    windows = [_windows(dimensions, operands[0].ndim, update) for update in updates]
    size = windows[0].shape[1:]
    last = jnp.array([extent - width for extent, width in zip(operands[0].shape, size, strict=True)], starts.dtype)

    def step(index: jax.Array, arrays: list[jax.Array]) -> list[jax.Array]:
        start = starts[index]
        inside = jnp.all((start >= 0) & (start <= last))
        place = list(lax.clamp(jnp.zeros_like(last), start, last))
        before = [lax.dynamic_slice(array, place, size) for array in arrays]
        after = combine(*before, *(window[index] for window in windows))
        kept = [lax.select(inside, new, old) for new, old in zip(after, before, strict=True)]
        return [lax.dynamic_update_slice(array, new, place) for array, new in zip(arrays, kept, strict=True)]

    return lax.fori_loop(0, starts.shape[0], step, [jnp.asarray(operand) for operand in operands])


def _starts(dimensions: lax.ScatterDimensionNumbers, rank: int, indices: jax.Array) -> jax.Array:
    """Returns the start of each window in every dimension of the operand: windows x rank, signed."""
    places = indices.shape[:-1]
    columns: list[Any] = [jnp.zeros(places, jnp.int64)] * rank
    for column, dimension in enumerate(dimensions.scatter_dims_to_operand_dims):
        columns[dimension] = lax.convert_element_type(indices[..., column], jnp.int64)
    batching = zip(dimensions.operand_batching_dims, dimensions.scatter_indices_batching_dims, strict=True)
    for dimension, along in batching:
        columns[dimension] = lax.broadcasted_iota(jnp.int64, places, along)
    return jnp.stack(columns, -1).reshape(math.prod(places), rank)


def _windows(dimensions: lax.ScatterDimensionNumbers, rank: int, update: jax.Array) -> jax.Array:
    """Reshapes the updates to windows of the operand's rank: windows x window shape."""
    window = tuple(dimensions.update_window_dims)
    outer = tuple(axis for axis in range(update.ndim) if axis not in window)
    update = lax.transpose(update, outer + window)
    absent = (*dimensions.inserted_window_dims, *dimensions.operand_batching_dims)
    sizes = iter(update.shape[len(outer) :])
    shape = [1 if dimension in absent else next(sizes) for dimension in range(rank)]
    return lax.reshape(update, (math.prod(update.shape[: len(outer)]), *shape))
