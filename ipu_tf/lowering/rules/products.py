"""Matrix products."""

from __future__ import annotations

import jax
from jax import lax

from ipu_tf.lowering.jax_private import stablehlo
from ipu_tf.lowering.op import Op
from ipu_tf.lowering.rules.attributes import precision
from ipu_tf.lowering.rules.registry import Importer, rule


@rule("stablehlo.dot")
def _dot(importer: Importer, op: Op, left: jax.Array, right: jax.Array) -> jax.Array:
    contracting = ((left.ndim - 1,), (0,))
    return _product(op, left, right, (contracting, ((), ())))


@rule("stablehlo.dot_general")
def _dot_general(importer: Importer, op: Op, left: jax.Array, right: jax.Array) -> jax.Array:
    if op.has("algorithm"):
        raise NotImplementedError(f"a product by a prescribed algorithm: {op.text('algorithm')}")
    numbers = stablehlo.DotDimensionNumbers(op.attribute("dot_dimension_numbers"))
    contracting = tuple(numbers.lhs_contracting_dimensions), tuple(numbers.rhs_contracting_dimensions)
    batching = tuple(numbers.lhs_batching_dimensions), tuple(numbers.rhs_batching_dimensions)
    return _product(op, left, right, (contracting, batching))


def _product(op: Op, left: jax.Array, right: jax.Array, dimensions: lax.DotDimensionNumbers) -> jax.Array:
    return lax.dot_general(left, right, dimensions, precision=precision(op), preferred_element_type=op.result.dtype)
