"""Rules for `reduce` (sum, max, argmax, any reducer) and `map`; windows of them are in `pooling`."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from jax import lax

from ipu_tf.device.convolution.summation import reduce_sum
from ipu_tf.lowering.importer.rules.products import summed_product
from ipu_tf.lowering.importer.rules.regions import combiner, on_arrays, pairwise
from ipu_tf.lowering.importer.rules.registry import RULES, Importer, rule
from ipu_tf.lowering.stablehlo.op import Op

_FAST: dict[str | None, Callable[..., jax.Array]] = {
    "stablehlo.add": reduce_sum,
    "stablehlo.multiply": lax.reduce_prod,
    "stablehlo.maximum": lax.reduce_max,
    "stablehlo.minimum": lax.reduce_min,
    "stablehlo.and": lax.reduce_and,
    "stablehlo.or": lax.reduce_or,
    "stablehlo.xor": lax.reduce_xor,
}


_PLACE = sorted(f"stablehlo.{name}" for name in ("compare", "compare", "minimum", "return", *["select"] * 3))
"""The ops of a region that finds the place of the greatest or least number, the first of several."""


@rule("stablehlo.reduce")
def _reduce(importer: Importer, op: Op, *values: jax.Array) -> list[jax.Array]:
    count = len(values) // 2
    operands, starts, dimensions = values[:count], values[count:], op.integers("dimensions")
    name = combiner(op.regions[0]) if count == 1 else None
    if name in _FAST:
        reduced = summed_product(importer, op) if name == "stablehlo.add" else None
        if reduced is None:
            reduced = _FAST[name](operands[0], dimensions)
        return [_with_start(importer, op, str(name), reduced, starts[0])]
    if _finds_a_place(op):
        operands = (_without_nan(operands[0], starts[0]), *operands[1:])
    return list(lax.reduce(operands, starts, pairwise(importer, op.regions[0], starts), dimensions))


def _finds_a_place(op: Op) -> bool:
    """Returns whether a reduction is an argmax or argmin of floats whose places alone the program uses."""
    results = list(op.operation.results)
    if len(results) != 2 or not jax.numpy.issubdtype(op.result.dtype, jax.numpy.floating) or any(results[0].uses):
        return False
    return sorted(operation.operation.name for operation in op.regions[0].operations) == _PLACE


def _without_nan(operand: jax.Array, start: jax.Array) -> jax.Array:
    """Replaces NaN by the number that all others win against.

    No comparison with NaN holds, so the region takes NaN in place of what came before, and what comes after in place of
    NaN. TensorFlow's CPU kernels never take NaN.
    """
    return lax.select(lax.ne(operand, operand), lax.broadcast(start, operand.shape), operand)


def _with_start(importer: Importer, op: Op, name: str, reduced: jax.Array, start: jax.Array) -> jax.Array:
    """Combines a reduction with its initial value, unless that is the identity element."""
    if isinstance(start, np.ndarray) and start == identity(name, start.dtype):
        return reduced
    return RULES[name](importer, op, reduced, lax.broadcast(start, reduced.shape))


def identity(name: str, dtype: np.dtype) -> np.generic:
    """Returns the identity element of an op such as `stablehlo.add`.

    Raises:
        KeyError: if `name` is not one of add, multiply, maximum, minimum, and, or, xor.
    """
    if name in ("stablehlo.maximum", "stablehlo.minimum"):
        return _least(dtype) if name == "stablehlo.maximum" else _greatest(dtype)
    whole = np.array(-1).astype(dtype)[()]
    return {
        "stablehlo.add": dtype.type(0),
        "stablehlo.multiply": dtype.type(1),
        "stablehlo.and": whole,
        "stablehlo.or": dtype.type(0),
        "stablehlo.xor": dtype.type(0),
    }[name]


def _least(dtype: np.dtype) -> np.generic:
    if dtype == np.bool_:
        return np.False_
    return dtype.type(jax.numpy.iinfo(dtype).min if jax.numpy.issubdtype(dtype, np.integer) else -np.inf)


def _greatest(dtype: np.dtype) -> np.generic:
    if dtype == np.bool_:
        return np.True_
    return dtype.type(jax.numpy.iinfo(dtype).max if jax.numpy.issubdtype(dtype, np.integer) else np.inf)


@rule("stablehlo.map")
def _map(importer: Importer, op: Op, *operands: jax.Array) -> list[jax.Array]:
    return on_arrays(importer, op.regions[0])(*operands)
