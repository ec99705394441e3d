"""Rules for StableHLO's elementwise ops: arithmetic, comparison, select, convert, bits.

`stablehlo.maximum` is in `convolution`, which it may be fused with; `chlo` ops are in `special_functions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.lowering.importer.rules.registry import ArithmeticKind, Importer, rule
from ipu_tf.lowering.importer.rules.total_order import to_ordered_bits
from ipu_tf.lowering.stablehlo.op import Op


def _product(left: jax.Array, right: jax.Array) -> jax.Array:
    """Multiplies.

    XLA holds the square of an integer to be no less than 0, and leaves out `abs` of it and comparisons. One that wraps
    around may be less: as a product of unsigned integers, which has the same bits, it is none that XLA knows.
    """
    if left is not right or np.dtype(left.dtype).kind != "i":
        return lax.mul(left, right)
    bits = lax.bitcast_convert_type(left, np.dtype(f"uint{8 * left.dtype.itemsize}"))
    return lax.bitcast_convert_type(lax.mul(bits, bits), left.dtype)


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lax.add,
    "atan2": lax.atan2,
    "cbrt": lax.cbrt,
    "cosine": lax.cos,
    "divide": lax.div,
    "exponential": lax.exp,
    "exponential_minus_one": lax.expm1,
    "log": lax.log,
    "log_plus_one": lax.log1p,
    "logistic": lax.logistic,
    "multiply": _product,
    "remainder": lax.rem,
    "rsqrt": lax.rsqrt,
    "sine": lax.sin,
    "sqrt": lax.sqrt,
    "subtract": lax.sub,
    "tan": lax.tan,
    "tanh": lax.tanh,
}
_EXACT: dict[str, Callable[..., Any]] = {
    "abs": lax.abs,
    "and": lax.bitwise_and,
    "ceil": lax.ceil,
    "clamp": lax.clamp,
    "complex": lax.complex,
    "count_leading_zeros": lax.clz,
    "floor": lax.floor,
    "imag": lax.imag,
    "is_finite": lax.is_finite,
    "minimum": lax.min,
    "negate": lax.neg,
    "not": lax.bitwise_not,
    "or": lax.bitwise_or,
    "popcnt": lax.population_count,
    "real": lax.real,
    "round_nearest_afz": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round_nearest_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
    "sign": lax.sign,
    "xor": lax.bitwise_xor,
}


def _register(name: str, function: Callable[..., Any], arithmetic: ArithmeticKind | None) -> None:
    @rule(f"stablehlo.{name}", arithmetic=arithmetic)
    def elementwise(importer: Importer, op: Op, *operands: jax.Array) -> jax.Array:
        return function(*operands)


for _name, _function in _ARITHMETIC.items():
    _register(_name, _function, ArithmeticKind.ELEMENTWISE)
for _name, _function in _EXACT.items():
    _register(_name, _function, None)

#: What floats become before they become unsigned integers, which have the lowest bits of the whole number: as on an IPU
#: and in TensorFlow on the CPU, -1.0 becomes 255.
_OF_UNSIGNED: dict[Any, np.dtype] = {
    np.dtype(np.uint8): np.dtype(np.int32),
    np.dtype(np.uint16): np.dtype(np.int32),
    np.dtype(np.uint32): np.dtype(np.int64),
}
_WHOLE = (np.dtype(np.int32), np.dtype(np.int64))
_LONG, _LONG_UNSIGNED = np.dtype(np.int64), np.dtype(np.uint64)
_COMPARISONS = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}


@rule("stablehlo.compare")
def _compare(importer: Importer, op: Op, left: jax.Array, right: jax.Array) -> jax.Array:
    if op.has("compare_type") and op.word("compare_type") == "TOTALORDER":
        left, right = to_ordered_bits(left), to_ordered_bits(right)
    return _COMPARISONS[op.word("comparison_direction")](left, right)


@rule("stablehlo.select")
def _select(importer: Importer, op: Op, which: jax.Array, if_true: jax.Array, if_false: jax.Array) -> jax.Array:
    return lax.select(which, if_true, if_false)


@rule("stablehlo.convert", arithmetic=ArithmeticKind.ELEMENTWISE)
def _convert(importer: Importer, op: Op, operand: jax.Array) -> jax.Array:
    wanted = op.result.dtype
    if operand.dtype == wanted:
        return operand
    if jnp.issubdtype(operand.dtype, jnp.floating):
        if wanted in _OF_UNSIGNED:
            operand = _whole_numbers(operand, _OF_UNSIGNED[wanted])
        if wanted in _WHOLE:
            return _whole_numbers(operand, wanted)
        if wanted == _LONG_UNSIGNED:
            return _long_unsigned(operand)
    return lax.convert_element_type(operand, wanted)


def _whole_numbers(operand: jax.Array, wanted: np.dtype) -> jax.Array:
    """Converts floats to int32 or int64 as an IPU and TensorFlow on the CPU do.

    NaN and what is too large become the least integer; XLA has 0 and the largest one. For integers of fewer bits, and
    uint32, TensorFlow's own results of these depend on where in a tensor a number stands.
    """
    if operand.dtype.itemsize < 4:
        operand = lax.convert_element_type(operand, np.float32)
    fits = operand < lax.full_like(operand, 2.0 ** (8 * wanted.itemsize - 1))
    whole = lax.convert_element_type(operand, wanted)
    return lax.select(fits, whole, lax.full_like(whole, np.iinfo(wanted).min))


def _long_unsigned(operand: jax.Array) -> jax.Array:
    """Converts floats to uint64 as TensorFlow on the CPU does: -1.0 becomes the greatest integer; XLA has 0.

    What int64 has keeps its bits. NaN and what uint64 does not have become 2^63.
    """
    if operand.dtype.itemsize < 4:
        operand = lax.convert_element_type(operand, np.float32)
    whole = lax.bitcast_convert_type(_whole_numbers(operand, _LONG), _LONG_UNSIGNED)
    fits = (operand >= lax.full_like(operand, 2.0**63)) & (operand < lax.full_like(operand, 2.0**64))
    return lax.select(fits, lax.convert_element_type(operand, _LONG_UNSIGNED), whole)


@rule("stablehlo.bitcast_convert")
def _bitcast_convert(importer: Importer, op: Op, operand: jax.Array) -> jax.Array:
    wanted = op.result.dtype
    return operand if operand.dtype == wanted else lax.bitcast_convert_type(operand, wanted)


@rule("stablehlo.reduce_precision")
def _reduce_precision(importer: Importer, op: Op, operand: jax.Array) -> jax.Array:
    return lax.reduce_precision(operand, op.integer("exponent_bits"), op.integer("mantissa_bits"))


@rule("stablehlo.power", arithmetic=ArithmeticKind.ELEMENTWISE)
def _power(importer: Importer, op: Op, base: jax.Array, exponent: jax.Array) -> jax.Array:
    return _integer_power(base, exponent) if jnp.issubdtype(base.dtype, jnp.integer) else lax.pow(base, exponent)


_PowerState = tuple[jax.Array, jax.Array, jax.Array]
"""The result so far, the base squared so far, the bits of the exponent left."""


def _integer_power(base: jax.Array, exponent: jax.Array) -> jax.Array:
    """Computes integer powers by repeated squaring. With a negative exponent, results other than 1 and -1 are 0."""
    one, zero = lax.full_like(base, 1), lax.full_like(base, 0)
    signed = jnp.issubdtype(base.dtype, jnp.signedinteger)

    def step(state: _PowerState) -> _PowerState:
        result, square, left = state
        odd = lax.ne(lax.bitwise_and(left, one), zero)
        return lax.select(odd, result * square, result), square * square, lax.shift_right_logical(left, one)

    start = (one, jnp.asarray(base), lax.abs(exponent) if signed else jnp.asarray(exponent))
    result, _, _ = lax.while_loop(lambda state: jnp.any(state[2] != 0), step, start)
    if not signed:
        return result
    invertible = lax.eq(lax.abs(base), one)
    return lax.select(lax.bitwise_or(lax.ge(exponent, zero), invertible), result, zero)
