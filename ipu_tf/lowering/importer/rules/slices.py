"""Rules for `slice`, `dynamic_slice` and `dynamic_update_slice`."""

from __future__ import annotations

import jax
from jax import lax

from ipu_tf.lowering.importer.rules.constant_operands import static_integers
from ipu_tf.lowering.importer.rules.registry import Importer, rule
from ipu_tf.lowering.stablehlo.op import Op


@rule("stablehlo.slice")
def _slice(importer: Importer, op: Op, operand: jax.Array) -> jax.Array:
    return _sliced(operand, op.integers("start_indices"), op.integers("limit_indices"), op.integers("strides"))


@rule("stablehlo.real_dynamic_slice")
def _real_dynamic_slice(importer: Importer, op: Op, operand: jax.Array, *places: jax.Array) -> jax.Array:
    return _sliced(operand, *(static_integers(place, "slice") for place in places))


def _sliced(operand: jax.Array, start: tuple[int, ...], limit: tuple[int, ...], strides: tuple[int, ...]) -> jax.Array:
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
