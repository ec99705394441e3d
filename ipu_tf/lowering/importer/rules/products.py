"""Rules for matrix products, `dot` and `dot_general`; fuses batched products with the sum over their batch.

TensorFlow differentiates a product that broadcasts its weights as a product for each sample, and a sum over them:

    sum over b of (left[b] x right[b])   =   one product that contracts b as well

The one product needs no array of the products' size for each sample: for the projections of an attention layer it is
several times faster.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

from ipu_tf.device.packed.packed_product import PackedForm, packed_product
from ipu_tf.lowering.importer.rules.attributes import precision
from ipu_tf.lowering.importer.rules.registry import ArithmeticKind, Importer, custom_call_rule, rule
from ipu_tf.lowering.jax.jax_private import stablehlo
from ipu_tf.lowering.jax.transposed_products import is_of_vector, of_source
from ipu_tf.lowering.stablehlo.module import configuration
from ipu_tf.lowering.stablehlo.op import Op, array_type


@rule("stablehlo.dot", arithmetic=ArithmeticKind.WHOLE)
def _dot(importer: Importer, op: Op, left: jax.Array, right: jax.Array) -> jax.Array:
    return _product(op, *_untransposed(importer, op, left, right))


@rule("stablehlo.dot_general", arithmetic=ArithmeticKind.WHOLE)
def _dot_general(importer: Importer, op: Op, left: jax.Array, right: jax.Array) -> jax.Array:
    if op.has("algorithm"):
        raise NotImplementedError(f"a product by a prescribed algorithm: {op.text('algorithm')}")
    return _product(op, *_untransposed(importer, op, left, right))


@custom_call_rule("ipu.packed_product", arithmetic=ArithmeticKind.WHOLE)
def _packed_product(importer: Importer, op: Op, x: jax.Array, weights: jax.Array, *groups: jax.Array) -> jax.Array:
    return packed_product(x, weights, PackedForm(**configuration(op.operation)), *groups)


def summed_product(importer: Importer, total: Op) -> jax.Array | None:
    """Computes the sum of a batch of products as one product; None unless `total` sums over float32 batch dimensions.

    Args:
        importer: has the operands of the product.
        total: a `stablehlo.reduce` that adds, from zero.
    """
    owner = has_one_use(total.operation.operands[0])
    if len(total.operation.operands) != 2 or owner is None or owner.name != "stablehlo.dot_general":
        return None
    op, summed = Op(owner), total.integers("dimensions")
    contracting, batching = _dimensions(op)
    if not summed or max(summed) >= len(batching[0]) or op.has("algorithm") or op.result.dtype != np.float32:
        return None
    if not importer.has(op.operation.operands):
        return None  # the product is part of what ran before a loop
    left, right = importer.read(op.operation.operands)
    # The dimensions of a batch are the first of a product, in their order.
    kept = [tuple(d for place, d in enumerate(side) if place not in summed) for side in batching]
    more = [(*side, *(every[place] for place in summed)) for side, every in zip(contracting, batching, strict=True)]
    return _product(op, left, right, ((more[0], more[1]), (kept[0], kept[1])))


def is_matrix_product(op: Op) -> bool:
    """Returns whether an op is a product of two float32 matrices."""
    if op.name not in ("stablehlo.dot", "stablehlo.dot_general") or op.has("algorithm"):
        return False
    contracting, batching = _dimensions(op)
    types = [array_type(str(value.type)) for value in (*op.operation.operands, op.operation.results[0])]
    matrices = all(len(each.shape) == 2 and each.dtype == np.float32 for each in types)
    return matrices and not batching[0] and len(contracting[0]) == 1


def sum_of_matrix_products(op: Op, left: jax.Array, right: jax.Array) -> jax.Array:
    """Computes the sum over t of a matrix product of `left[t]` and `right[t]` as one product."""
    (of_left,), (of_right,) = _dimensions(op)[0]
    return _product(op, left, right, (((0, of_left + 1), (0, of_right + 1)), ((), ())))


def has_one_use(value: Any) -> Any:
    """Returns the op that computes a value, behind identities; None if the value has other uses."""
    while len(list(value.uses)) == 1 and hasattr(value.owner, "operands"):
        if not _is_identity(value.owner):
            return value.owner
        value = value.owner.operands[0]
    return None


def _is_identity(operation: Any) -> bool:
    if operation.name not in ("stablehlo.reshape", "stablehlo.convert", "stablehlo.transpose"):
        return False
    order = Op(operation).integers("permutation")
    return bool(operation.operands[0].type == operation.results[0].type) and order == tuple(sorted(order))


def _dimensions(op: Op) -> Any:
    """Returns contracting and batch dimensions of both sides, as `lax.dot_general` takes them."""
    if op.name == "stablehlo.dot":
        return ((len(array_type(str(op.operation.operands[0].type)).shape) - 1,), (0,)), ((), ())
    numbers = stablehlo.DotDimensionNumbers(op.attribute("dot_dimension_numbers"))
    contracting = tuple(numbers.lhs_contracting_dimensions), tuple(numbers.rhs_contracting_dimensions)
    return contracting, (tuple(numbers.lhs_batching_dimensions), tuple(numbers.rhs_batching_dimensions))


def _untransposed(importer: Importer, op: Op, left: jax.Array, right: jax.Array) -> tuple[Any, Any, Any]:
    """Returns the operands and dimensions of a product; one of a vector takes a transposed matrix as it was before."""
    operands, dimensions = [left, right], _dimensions(op)
    for side, value in enumerate(op.operation.operands):
        owner = value.owner
        moved = getattr(owner, "name", "") == "stablehlo.transpose" and owner.operation.block == op.operation.block
        if moved and importer.has(owner.operands):
            changed = of_source(dimensions, side, Op(owner).integers("permutation"))
            if changed is not None and is_of_vector([each.shape for each in operands], dimensions, side):
                dimensions, [operands[side]] = changed, importer.read(owner.operands)
    return operands[0], operands[1], dimensions


def _product(op: Op, left: jax.Array, right: jax.Array, dimensions: lax.DotDimensionNumbers) -> jax.Array:
    return lax.dot_general(left, right, dimensions, precision=precision(op), preferred_element_type=op.result.dtype)
