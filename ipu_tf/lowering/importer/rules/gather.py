"""Rules for gather. Windows out of bounds are clamped, as in XLA."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax import lax

from ipu_tf.lowering.importer.rules.attributes import flag
from ipu_tf.lowering.importer.rules.constant_operands import static_integers
from ipu_tf.lowering.importer.rules.registry import Importer, rule
from ipu_tf.lowering.jax.jax_private import stablehlo
from ipu_tf.lowering.stablehlo.op import Op


@rule("stablehlo.gather")
def _gather(importer: Importer, op: Op, operand: jax.Array, indices: jax.Array) -> jax.Array:
    return _gathered(op, operand, indices, op.integers("slice_sizes"))


@rule("stablehlo.dynamic_gather")
def _dynamic_gather(importer: Importer, op: Op, operand: jax.Array, indices: jax.Array, sizes: jax.Array) -> jax.Array:
    return _gathered(op, operand, indices, static_integers(sizes, "slice size"))


def _gathered(op: Op, operand: jax.Array, indices: jax.Array, slice_sizes: tuple[int, ...]) -> jax.Array:
    numbers = stablehlo.GatherDimensionNumbers(op.attribute("dimension_numbers"))
    indices, batching = with_last_index_vector(indices, numbers.index_vector_dim, numbers.start_indices_batching_dims)
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=tuple(numbers.offset_dims),
        collapsed_slice_dims=tuple(numbers.collapsed_slice_dims),
        start_index_map=tuple(numbers.start_index_map),
        operand_batching_dims=tuple(numbers.operand_batching_dims),
        start_indices_batching_dims=batching,
    )
    return lax.gather(
        operand,
        indices,
        dimensions,
        slice_sizes,
        indices_are_sorted=flag(op, "indices_are_sorted"),
        mode=lax.GatherScatterMode.CLIP,
    )


def with_last_index_vector(
    indices: jax.Array, index_vector_dim: int, batching: Sequence[int]
) -> tuple[jax.Array, tuple[int, ...]]:
    """Transposes gather indices so that the index vectors are last, as in JAX; adjusts their batching dimensions.

    Args:
        indices: index vectors along any dimension; where that is the rank, each element is a vector of one.
        index_vector_dim: that dimension.
        batching: dimensions of `indices` that run along with dimensions of the operand.
    """
    rank = indices.ndim
    if index_vector_dim == rank:
        return lax.expand_dims(indices, (rank,)), tuple(batching)
    order = [dimension for dimension in range(rank) if dimension != index_vector_dim]
    moved = tuple(order.index(dimension) for dimension in batching)
    if index_vector_dim == rank - 1:
        return indices, moved
    return lax.transpose(indices, (*order, index_vector_dim)), moved
