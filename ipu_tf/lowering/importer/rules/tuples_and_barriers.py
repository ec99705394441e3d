"""Rules for ops that pass values on: tuples, tokens, optimization barriers, composites, stage boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax

from ipu_tf.lowering.importer.rules.registry import Importer, custom_call_rule, rule
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.stablehlo.stage_markers import CHECKPOINT, STAGE_BOUNDARY


@rule("mhlo.copy")
@custom_call_rule("Sharding", "ipu.assume_equal")
def _same(importer: Importer, op: Op, operand: jax.Array) -> jax.Array:
    return operand


@rule("stablehlo.tuple")
def _tuple(importer: Importer, op: Op, *operands: jax.Array) -> list[tuple[jax.Array, ...]]:
    return [operands]


@rule("stablehlo.get_tuple_element")
def _get_tuple_element(importer: Importer, op: Op, operand: Sequence[jax.Array]) -> jax.Array:
    return operand[op.integer("index")]


@rule("stablehlo.optimization_barrier")
def _optimization_barrier(importer: Importer, op: Op, *operands: jax.Array) -> Sequence[jax.Array]:
    return lax.optimization_barrier(operands)


@rule("stablehlo.create_token", "stablehlo.after_all")
def _token(importer: Importer, op: Op, *tokens: None) -> list[None]:
    return [None]


@rule("stablehlo.composite")
def _composite(importer: Importer, op: Op, *operands: jax.Array) -> list[jax.Array]:
    return importer.run_function(op.text("decomposition").lstrip("@").strip('"'), operands)


@custom_call_rule(STAGE_BOUNDARY, CHECKPOINT)
def _boundary(importer: Any, op: Op, value: jax.Array) -> jax.Array:
    return value
