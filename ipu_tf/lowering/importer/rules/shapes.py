"""Rules for ops of shape and layout: reshape, transpose, broadcast, concatenate, pad, slice."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from ipu_tf.lowering.importer.rules.constant_operands import static_integers
from ipu_tf.lowering.importer.rules.registry import Importer, rule
from ipu_tf.lowering.stablehlo.op import Op


@rule("stablehlo.reshape", "stablehlo.dynamic_reshape")
def _reshape(importer: Importer, op: Op, operand: jax.Array, *shape: jax.Array) -> jax.Array:
    wanted = op.result.shape
    return operand if operand.shape == wanted else lax.reshape(operand, wanted)


@rule("stablehlo.transpose")
def _transpose(importer: Importer, op: Op, operand: jax.Array) -> jax.Array:
    order = op.integers("permutation")
    return operand if order == tuple(range(len(order))) else lax.transpose(operand, order)


@rule("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim")
def _broadcast_in_dim(importer: Importer, op: Op, operand: jax.Array, *shape: jax.Array) -> jax.Array:
    wanted, dimensions = op.result.shape, op.integers("broadcast_dimensions")
    if operand.shape == wanted and dimensions == tuple(range(len(wanted))):
        return operand
    return lax.broadcast_in_dim(operand, wanted, dimensions)


@rule("stablehlo.broadcast")
def _broadcast(importer: Importer, op: Op, operand: jax.Array) -> jax.Array:
    return lax.broadcast(operand, op.integers("broadcast_sizes"))


@rule("stablehlo.concatenate")
def _concatenate(importer: Importer, op: Op, *operands: jax.Array) -> jax.Array:
    return operands[0] if len(operands) == 1 else lax.concatenate(operands, op.integer("dimension"))


@rule("stablehlo.reverse")
def _reverse(importer: Importer, op: Op, operand: jax.Array) -> jax.Array:
    return lax.rev(operand, op.integers("dimensions"))


@rule("stablehlo.pad")
def _pad(importer: Importer, op: Op, operand: jax.Array, value: jax.Array) -> jax.Array:
    low, high = op.integers("edge_padding_low"), op.integers("edge_padding_high")
    return _padded(operand, value, low, high, op.integers("interior_padding"))


@rule("stablehlo.dynamic_pad")
def _dynamic_pad(importer: Importer, op: Op, operand: jax.Array, value: jax.Array, *edges: jax.Array) -> jax.Array:
    return _padded(operand, value, *(static_integers(edge, "padding") for edge in edges))


def _padded(
    operand: jax.Array,
    value: jax.Array,
    low: tuple[int, ...],
    high: tuple[int, ...],
    interior: tuple[int, ...],
) -> jax.Array:
    if not any(low + high + interior):
        return operand
    return lax.pad(operand, value, tuple(zip(low, high, interior, strict=True)))


@rule("stablehlo.get_dimension_size")
def _get_dimension_size(importer: Importer, op: Op, operand: jax.Array) -> np.ndarray:
    return np.array(operand.shape[op.integer("dimension")], op.result.dtype)


@rule("stablehlo.set_dimension_size")
def _set_dimension_size(importer: Importer, op: Op, operand: jax.Array, size: jax.Array) -> jax.Array:
    """Returns the operand: other sizes give a type of dynamic shape, which `Op` refuses."""
    assert op.result.shape == operand.shape
    return operand


@rule("stablehlo.real_dynamic_slice")
def _real_dynamic_slice(importer: Importer, op: Op, operand: jax.Array, *places: jax.Array) -> jax.Array:
    return sliced(operand, *(static_integers(place, "slice") for place in places))


def sliced(operand: jax.Array, start: tuple[int, ...], limit: tuple[int, ...], strides: tuple[int, ...]) -> jax.Array:
    """Returns a slice; the operand itself if that is all of it."""
    if limit == operand.shape and not any(start) and set(strides) <= {1}:
        return operand
    return lax.slice(operand, start, limit, strides)


@rule("stablehlo.dynamic_slice")
def _dynamic_slice(importer: Importer, op: Op, operand: jax.Array, *starts: jax.Array) -> jax.Array:
    return lax.dynamic_slice(operand, starts, op.integers("slice_sizes"), allow_negative_indices=False)


@rule("stablehlo.dynamic_update_slice")
def _dynamic_update_slice(
    importer: Importer, op: Op, operand: jax.Array, update: jax.Array, *starts: jax.Array
) -> jax.Array:
    return lax.dynamic_update_slice(operand, update, starts, allow_negative_indices=False)
