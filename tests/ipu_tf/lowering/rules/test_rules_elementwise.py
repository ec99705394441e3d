"""Ops that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.lowering_parity import Case, TextCase

rng = np.random.default_rng(0)
X = rng.uniform(0.2, 0.8, (3, 4)).astype(np.float32)
S = rng.uniform(-3, 3, (3, 4)).astype(np.float32)
Z = (S + 1j * S[::-1]).astype(np.complex64)
N = rng.integers(-9, 9, (3, 4)).astype(np.int32)
J = rng.integers(1, 5, (3, 4)).astype(np.int32)
U = J.astype(np.uint32)
B = N > 0
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3e38, 1e-30, np.inf, -np.inf, np.nan], np.float32)
#: The greatest numbers that integers have, those beyond, and what is no number.
BEYOND = np.concatenate(
    [
        SPECIAL,
        [sign * (2.0**bits + more) for bits in (7, 8, 15, 16, 31, 63) for sign in (1, -1) for more in (-1, 0, 1, 3)],
    ]
)
LEFT, RIGHT = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))


def _one(op: str, fn: Callable[..., Any], *args: Any, rtol: float = 1e-5, xla: bool = False) -> Case:
    return Case(op, fn, args, (f"stablehlo.{op}",), rtol, xla)


def _raw(name: str) -> Callable[..., Any]:
    return lambda x, y: getattr(tf.raw_ops, name)(x=x, y=y)


CASES = [
    _one("abs", tf.abs, S),
    _one("add", tf.add, X, S),
    _one("and", tf.bitwise.bitwise_and, N, J),
    _one("atan2", tf.atan2, S, X),
    _one("ceil", tf.math.ceil, S),
    _one("clamp", lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1.0, 1.0), S),
    _one("complex", tf.complex, X, S),
    _one("cosine", tf.cos, S),
    _one("divide", tf.math.divide, S, X),
    _one("exponential", tf.exp, S),
    _one("exponential_minus_one", tf.math.expm1, S),
    _one("floor", tf.math.floor, S),
    _one("imag", tf.math.imag, Z),
    _one("is_finite", tf.math.is_finite, SPECIAL),
    _one("log", tf.math.log, X),
    _one("log_plus_one", tf.math.log1p, X),
    _one("logistic", tf.sigmoid, S),
    _one("maximum", tf.maximum, X, S),
    _one("minimum", tf.minimum, X, S),
    _one("multiply", tf.multiply, X, S),
    _one("negate", tf.negative, S),
    _one("not", tf.bitwise.invert, N),
    _one("or", tf.bitwise.bitwise_or, N, J),
    _one("popcnt", lambda x: tf.raw_ops.PopulationCount(x=x), N, xla=True),
    _one("power", tf.pow, X, S),
    _one("real", tf.math.real, Z),
    _one("remainder", _raw("TruncateMod"), S, X),
    _one("round_nearest_afz", lambda x: tf.quantization.fake_quant_with_min_max_vars(x, -1.0, 2.0), S),
    _one("round_nearest_even", tf.round, np.array([0.5, 1.5, -0.5, 2.4], np.float32)),
    _one("rsqrt", tf.math.rsqrt, X),
    _one("select", tf.where, B, X, S),
    _one("shift_left", tf.bitwise.left_shift, N, J),
    _one("shift_right_arithmetic", tf.bitwise.right_shift, N, J),
    _one("shift_right_logical", tf.bitwise.right_shift, U, U),
    _one("sign", tf.sign, S),
    _one("sine", tf.sin, S),
    _one("sqrt", tf.sqrt, X),
    _one("subtract", tf.subtract, X, S),
    _one("tan", tf.tan, X),
    _one("tanh", tf.tanh, S),
    _one("xor", tf.bitwise.bitwise_xor, N, J),
    _one(
        "compare",
        lambda x, y: [f(x, y) for f in (tf.less, tf.less_equal, tf.equal, tf.not_equal)],
        LEFT,
        RIGHT,
    ),
    Case("erf", tf.math.erf, (S,), ("mhlo.erf",)),
    Case("select of a scalar", lambda p, x, y: tf.where(p, x, y), (np.True_, X, S), ("stablehlo.select",)),
    Case("clamp by scalars", lambda x: tf.clip_by_value(x, -0.5, 0.5), (S,), ("stablehlo.maximum",)),
    Case("bool logic", lambda a: [tf.logical_not(a), a & ~a, a | a, a ^ a], (B,), ("stablehlo.not",)),
    Case("special power", tf.pow, (LEFT, RIGHT), ("stablehlo.power",), 0, xla=True),
    Case("special divide", tf.math.divide, (LEFT, RIGHT), ("stablehlo.divide",), 0),
    Case("special round", lambda x: [tf.round(x), tf.floor(x), tf.math.ceil(x), tf.sign(x)], (SPECIAL,), (), 0),
]

INT_PAIRS = np.array([[-7, 2], [7, -2], [-7, -2], [7, 0], [-7, 0], [-(2**31), -1], [0, 0]], np.int32).T
CASES += [
    Case("integer division", _raw("TruncateDiv"), tuple(INT_PAIRS[:, :3]), ("stablehlo.divide",)),
    Case("integer division by zero", _raw("TruncateDiv"), tuple(INT_PAIRS), ("stablehlo.divide",), xla=True),
    Case("integer remainder by zero", _raw("TruncateMod"), tuple(INT_PAIRS), ("stablehlo.remainder",), xla=True),
    Case("integer power", tf.pow, (N, J), ("stablehlo.power",)),
    Case("long power", tf.pow, (N.astype(np.int64), J.astype(np.int64)), ("stablehlo.power",)),
    Case("shift by more than the bits", tf.bitwise.left_shift, (N, J + 30), ("stablehlo.shift_left",), xla=True),
]
#: Squares of these wrap around, to numbers below 0 among others.
SQUARED = {
    name: np.array([3, -5, 100, 12, -13, 50000, 2**31 - 1, 3037000500]).astype(name)
    for name in ("int8", "int16", "int32", "int64")
}
CASES += [
    Case(
        f"squares of {name}",
        lambda x: [x * x, tf.abs(x * x), x * x < 0, tf.square(x) >= 0, tf.maximum(x * x, 0), tf.abs(x)],
        (x,),
        ("stablehlo.abs",),
        0,
    )
    for name, x in SQUARED.items()
]


def _many(x: Any) -> list[Any]:
    return [
        tf.exp(x),
        tf.tanh(x),
        tf.math.rsqrt(x),
        tf.sigmoid(x),
        tf.pow(x, x),
        tf.abs(x - 1),
        -x,
        tf.math.log1p(x),
    ]


CASES += [
    Case("many float64", _many, (X.astype(np.float64),), ("stablehlo.tanh",), 1e-12),
    Case("many float16", _many, (X.astype(np.float16),), ("stablehlo.tanh",), 3e-3),
    Case("many bfloat16", _many, (X.astype(ml_dtypes.bfloat16),), ("stablehlo.tanh",), 2e-2),
    Case("many complex64", _many, ((X + 1j).astype(np.complex64),), ("stablehlo.tanh",), 1e-5),
    Case("many complex128", _many, (X + 1j * X.astype(np.float64),), ("stablehlo.tanh",), 1e-12),
    Case(
        "complex trigonometry",
        lambda z: [tf.sin(z), tf.tan(z), tf.asinh(z), tf.atanh(z), tf.abs(z), tf.math.angle(z), tf.sign(z)],
        (Z,),
        ("stablehlo.atan2",),
    ),
]

FLOATS = ("float32", "float64", "float16", "bfloat16")
TYPES = (*FLOATS, "int8", "int32", "int64", "uint8", "uint32", "uint64", "bool")


def _casts(x: Any) -> list[Any]:
    return [tf.cast(x, name) for name in (*TYPES, "complex64", "complex128")]


def _beyond(name: str) -> Any:
    with np.errstate(over="ignore"):
        return BEYOND.astype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


CASES += [
    Case(f"convert {name}", _casts, (J.astype(ml_dtypes.bfloat16 if name == "bfloat16" else name),), (op,))
    for name in TYPES
    for op in ("stablehlo.convert",)
]
CASES += [
    Case(
        f"convert {name} beyond the range",
        lambda x: [tf.cast(x, name) for name in ("int32", "int64", "uint64", "bool")],
        (_beyond(name),),
        ("stablehlo.convert",),
        0,
    )
    for name in FLOATS
]
#: uint32 has what TensorFlow's own results agree on, wherever in a tensor a number stands.
AGREED = np.array([-1.7, -2, -(2.0**31), -3000.5, -0.4, 0.7, 3e9, 2.0**31, 2.0**32 - 256, 65536.5])
CASES += [
    Case(
        f"convert {name} to uint32, below 0 too",
        lambda x: [tf.cast(x, "uint32"), tf.cast(x[3], "uint32"), tf.cast(tf.tile(x, [7]), "uint32")],
        (AGREED.astype(name),),
        ("stablehlo.convert",),
        0,
    )
    for name in ("float32", "float64")
]
CASES += [
    # TensorFlow's own results depend on where in the tensor a number stands.
    Case(
        "convert to other integers beyond the range",
        lambda x: [tf.cast(x, name) for name in ("int8", "int16")],
        (SPECIAL,),
        ("stablehlo.convert",),
        xla=True,
    ),
]
CASES += [
    Case(
        f"bitcast to {name}",
        lambda x, name=name: tf.bitcast(x, name),
        (bits,),
        ("stablehlo.bitcast_convert",),
        0,
    )
    for name, bits in {"int32": SPECIAL, "uint8": SPECIAL, "float64": N.reshape(6, 2)}.items()
]


def _unary(op: str, args: tuple[Any, ...], expected: Any, types: str = "3xf32", rtol: float = 1e-5) -> TextCase:
    names = [f"%{chr(97 + index)}" for index in range(len(args))]
    signature = ", ".join(f"{name}: tensor<{types}>" for name in names)
    arrow = f"({', '.join([f'tensor<{types}>'] * len(args))}) -> tensor<{types}>"
    body = f'%r = "{op}"({", ".join(names)}) : {arrow}\nreturn %r : tensor<{types}>'
    return TextCase(f"{op} of {types}", f"({signature}) -> tensor<{types}>", body, args, (expected,), (op,), rtol)


V = np.array([0.3, 0.9, 0.5], np.float32)
W = np.array([2.0, 3.0, 4.0], np.float32)
BITS = np.array([1, 5, 255], np.int32)
BOTH_DIALECTS = {
    "acos": np.arccos,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "cosh": np.cosh,
    "erf": tf.math.erf,
    "sinh": np.sinh,
    "tan": np.tan,
}
TEXTS = [_unary(f"{dialect}.{name}", (V,), fn(V)) for name, fn in BOTH_DIALECTS.items() for dialect in ("chlo", "mhlo")]
TEXTS += [
    _unary("chlo.acosh", (W,), np.arccosh(W)),
    _unary("mhlo.acosh", (W,), np.arccosh(W)),
    _unary("chlo.atan", (V,), np.arctan(V)),
    _unary("chlo.bessel_i1e", (W,), tf.math.bessel_i1e(W)),
    _unary("chlo.conj", (Z[0, :3],), np.conj(Z[0, :3]), "3xcomplex<f32>"),
    _unary("chlo.digamma", (W,), tf.math.digamma(W)),
    _unary("chlo.erf_inv", (V,), tf.math.erfinv(V)),
    _unary("chlo.erfc", (V,), tf.math.erfc(V)),
    _unary("chlo.lgamma", (W,), tf.math.lgamma(W)),
    _unary("chlo.next_after", (V, W), np.nextafter(V, W), rtol=0),
    _unary("chlo.polygamma", (W, V), tf.math.polygamma(W, V)),
    _unary("chlo.square", (V,), V * V),
    _unary("chlo.zeta", (W, V), tf.math.zeta(W, V)),
    _unary("stablehlo.cbrt", (W,), np.cbrt(W)),
    _unary("stablehlo.count_leading_zeros", (BITS,), np.array([31, 29, 24], np.int32), "3xi32"),
    _unary("stablehlo.power", (np.array([1, -1, 2]), np.array([-3, -3, -1])), np.array([1, -1, 0]), "3xi64"),
    _unary("stablehlo.power", (U[0, :3], U[1, :3]), U[0, :3] ** U[1, :3], "3xui32"),
    _unary("stablehlo.maximum", (LEFT, RIGHT), np.maximum(LEFT, RIGHT), "121xf32", 0),
    _unary("stablehlo.minimum", (LEFT, RIGHT), np.minimum(LEFT, RIGHT), "121xf32", 0),
]
INFINITE: dict[str, Callable[..., Any]] = {
    "is_inf": np.isinf,
    "is_neg_inf": np.isneginf,
    "is_pos_inf": np.isposinf,
}
TEXTS += [
    TextCase(
        f"chlo.{name}",
        "(%a: tensor<11xf32>) -> tensor<11xi1>",
        f"%r = chlo.{name} %a : tensor<11xf32> -> tensor<11xi1>\nreturn %r : tensor<11xi1>",
        (SPECIAL,),
        (check(SPECIAL),),
        (f"chlo.{name}",),
    )
    for name, check in INFINITE.items()
]
#: In the total order: negative NaN, -inf, finite numbers with -0 before +0, inf, NaN.
ORDERED = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1e-30, 2, np.inf, np.nan], np.float32)
PLACES = np.arange(9)
TEXTS += [
    TextCase(
        f"compare in total order, {direction}",
        "(%a: tensor<9x9xf32>, %b: tensor<9x9xf32>) -> tensor<9x9xi1>",
        f"%r = stablehlo.compare {direction}, %a, %b, TOTALORDER : (tensor<9x9xf32>, tensor<9x9xf32>) -> "
        "tensor<9x9xi1>\nreturn %r : tensor<9x9xi1>",
        tuple(np.meshgrid(ORDERED, ORDERED, indexing="ij")),
        (compare(*np.meshgrid(PLACES, PLACES, indexing="ij")),),
        ("stablehlo.compare",),
    )
    for direction, compare in {"LT": np.less, "GE": np.greater_equal, "EQ": np.equal}.items()
]
TEXTS += [
    TextCase(
        "reduce_precision",
        "(%a: tensor<3xf32>) -> tensor<3xf32>",
        "%r = stablehlo.reduce_precision %a, format = e5m10 : tensor<3xf32>\nreturn %r : tensor<3xf32>",
        (np.array([1.0001, 0.1, 3.14159], np.float32),),
        (np.array([1.0001, 0.1, 3.14159], np.float16).astype(np.float32),),
        ("stablehlo.reduce_precision",),
        0,
    )
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_tensorflow(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.name)
def test_agrees_with_numpy(case: TextCase) -> None:
    case.check()
