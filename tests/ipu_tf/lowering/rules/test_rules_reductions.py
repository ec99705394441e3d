"""Reductions, over whole dimensions and over windows, and batch normalisation."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.lowering_parity import Case, TextCase, lowered, traced_module

rng = np.random.default_rng(0)
X = rng.normal(size=(3, 4, 5)).astype(np.float32)
N = rng.integers(-9, 9, (3, 4, 5)).astype(np.int32)
Z = (X + 1j * X[::-1]).astype(np.complex64)
NAN = np.where(X > 1, np.nan, X).astype(np.float32)
IMAGE = rng.normal(size=(2, 7, 8, 3)).astype(np.float32)
HALF_IMAGE = IMAGE.astype(ml_dtypes.bfloat16)
VOLUME = rng.normal(size=(1, 4, 5, 6, 2)).astype(np.float32)
SCALE, OFFSET = np.array([1, 2, 3], np.float32), np.array([0.1, 0.2, 0.3], np.float32)
TIES = rng.integers(0, 3, IMAGE.shape).astype(np.float32)
REDUCE, WINDOW = ("stablehlo.reduce",), ("stablehlo.reduce_window",)
SELECT_AND_SCATTER = ("stablehlo.select_and_scatter",)


def _over(fn: Any, axis: Any = 1) -> Any:
    return lambda x: fn(x, axis=axis)


CASES = [
    Case(f"reduce_{name} over {axis}", _over(getattr(tf, f"reduce_{name}"), axis), (X,), REDUCE)
    for name in ("sum", "prod", "max", "min", "mean", "logsumexp")
    for axis in (1, (0, 2), None)
]
CASES += [
    Case(f"reduce_{name} of integers", _over(getattr(tf, f"reduce_{name}")), (N,), REDUCE, 0)
    for name in ("sum", "prod", "max", "min")
]
CASES += [
    Case("reduce_all", _over(tf.reduce_all), (N > -5,), REDUCE),
    Case("reduce_any", _over(tf.reduce_any), (N > 5,), REDUCE),
    Case("reduce_sum of complex", _over(tf.reduce_sum), (Z,), REDUCE),
    Case("reduce_max with nan", _over(tf.reduce_max), (NAN,), REDUCE),
    Case("reduce nothing", lambda x: [tf.reduce_sum(x[:0], 0), tf.reduce_max(x[:0], 0)], (X,), REDUCE),
    Case("reduce bfloat16", _over(tf.reduce_sum), (X.astype(ml_dtypes.bfloat16),), REDUCE, 2e-2),
    Case("argmax", _over(tf.argmax), (X,), REDUCE, 0),
    Case("argmin of ties", _over(tf.argmin), (N,), REDUCE, 0),
    Case("top accuracy", lambda x: tf.math.in_top_k([1, 2, 3], x[:, :, 0], 2), (X,), REDUCE, 0),
    Case("moments", lambda x: tf.nn.moments(x, [0, 2]), (X,), REDUCE),
    Case("max_pool2d", lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"), (IMAGE,), WINDOW, 0),
    Case("max_pool2d of bfloat16", lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"), (HALF_IMAGE,), WINDOW, 0),
    Case("max_pool2d of overlapping windows", lambda x: tf.nn.max_pool2d(x, 3, 1, "VALID"), (IMAGE,), WINDOW, 0),
    Case("avg_pool2d", lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), (IMAGE,), WINDOW),
    Case("max_pool3d", lambda x: tf.nn.max_pool3d(x, 2, 2, "SAME"), (VOLUME,), WINDOW, 0),
    Case("avg_pool3d", lambda x: tf.nn.avg_pool3d(x, 2, 1, "VALID"), (VOLUME,), WINDOW),
    Case("max_pool1d", lambda x: tf.nn.max_pool1d(x, 2, 2, "VALID"), (X,), WINDOW, 0),
    Case("cumsum", _over(tf.cumsum), (X,), WINDOW),
    Case("cumsum backwards", lambda x: tf.cumsum(x, 2, exclusive=True, reverse=True), (X,), WINDOW),
    Case("cumsum of integers", _over(tf.cumsum, 0), (N,), WINDOW, 0),
    Case("cumprod", lambda x: tf.math.cumprod(x, 1, exclusive=True), (X,), WINDOW),
    Case("cumulative_logsumexp", _over(tf.math.cumulative_logsumexp), (X,), WINDOW),
    Case("local response", lambda x: tf.nn.local_response_normalization(x, 2), (IMAGE,), WINDOW),
]


def _places(x: Any) -> list[Any]:
    return [
        find(x, axis, out_type)
        for find in (tf.argmax, tf.argmin)
        for axis in (0, 1)
        for out_type in (tf.int32, tf.int64)
    ]


#: NaN in every place, and nothing else; infinities that are all or beside it.
WITH_NAN = [
    np.where(rng.random((size, size)) < share, np.nan, rng.choice([-np.inf, -1, 0, 2, np.inf], (size, size)))
    for size in (1, 3, 5, 8, 17, 64)
    for share in (0.2, 0.7, 1)
]
CASES += [
    Case(f"argmax and argmin of {dtype} with nan, {number}", _places, (tf.cast(x, dtype).numpy(),), REDUCE, 0)
    for number, x in enumerate(WITH_NAN)
    for dtype in ("float32", "float64", "float16", "bfloat16")
    if dtype == "float32" or number in (4, 13)
]


def _gradients(fn: Any) -> Any:
    def gradients(*args: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(args)
            loss = tf.reduce_sum(tf.sin(fn(*args)))
        return tape.gradient(loss, args)

    return gradients


def _batch_norm(x: Any, scale: Any, offset: Any) -> Any:
    return tf.compat.v1.nn.fused_batch_norm(x, scale, offset, epsilon=0.01)[0]


def _batch_norm_inference(x: Any, scale: Any, offset: Any) -> Any:
    return tf.compat.v1.nn.fused_batch_norm(x, scale, offset, offset, scale, epsilon=0.01, is_training=False)[0]


CASES += [
    Case("batch_norm_training", _batch_norm, (IMAGE, SCALE, OFFSET), ("stablehlo.batch_norm_training",)),
    Case(
        "batch_norm_inference",
        _batch_norm_inference,
        (IMAGE, SCALE, OFFSET),
        ("stablehlo.batch_norm_inference",),
    ),
    Case(
        "batch_norm_grad",
        _gradients(_batch_norm),
        (IMAGE, SCALE, OFFSET),
        ("stablehlo.batch_norm_grad",),
        1e-4,
    ),
    *(
        Case(
            f"max_pool{rank}d gradient {window} by {stride}",
            _gradients(pool),
            (image,),
            SELECT_AND_SCATTER,
            1e-4,
        )
        for rank, image, window, stride, pool in (
            (1, X, 2, 2, lambda x: tf.nn.max_pool1d(x, 2, 2, "VALID")),
            (2, IMAGE, 2, 2, lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID")),
            (2, IMAGE, 3, 2, lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME")),
            (2, TIES, 3, 1, lambda x: tf.nn.max_pool2d(x, 3, 1, "VALID")),
            (3, VOLUME, 2, 2, lambda x: tf.nn.max_pool3d(x, 2, 2, "SAME")),
        )
    ),
    Case("avg_pool2d gradient", _gradients(lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME")), (IMAGE,), WINDOW),
]


def _reduce(
    name: str, count: int, region: str, inits: str, shape: str, element: str, args: Any, expected: Any
) -> TextCase:
    """A reduction over dimension 0 of an n x 3 array, or two."""
    operand, scalar, result = (f"tensor<{text}{element}>" for text in (shape, "", "3x"))
    names = ["%a", "%b"][:count]
    arguments = ", ".join(f"%x{index}: {scalar}" for index in range(2 * count))
    types = [operand] * count + [scalar] * count
    results = ", ".join([result] * count)
    returned = ", ".join(f"%r#{index}" for index in range(count)) if count > 1 else "%r"
    body = (
        f"{inits}\n%r{f':{count}' if count > 1 else ''} = "
        f'"stablehlo.reduce"({", ".join(names + ["%i", "%j"][:count])}) <{{dimensions = array<i64: 0>}}> '
        f"({{\n"
        f"^bb0({arguments}):\n{region}\n}}) : ({', '.join(types)}) -> ({results})\n"
        f"return {returned} : {results}"
    )
    signature = f"({', '.join(f'{n}: {operand}' for n in names)}) -> ({results})"
    return TextCase(name, signature, body, args, expected, REDUCE)


def _select_and_scatter(name: str, direction: str, start: str, scatter: str = "add") -> TextCase:
    body = (
        f"%i = stablehlo.constant dense<{start}> : tensor<f32>\n"
        '%r = "stablehlo.select_and_scatter"(%a, %s, %i) <{window_dimensions = array<i64: 2>, '
        "window_strides = array<i64: 2>, padding = dense<0> : tensor<1x2xi64>}> ({\n"
        "^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
        f"%z = stablehlo.compare {direction}, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "stablehlo.return %z : tensor<i1>\n}, {\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
        f"%z = stablehlo.{scatter} %x, %y : tensor<f32>\nstablehlo.return %z : tensor<f32>\n"
        "}) : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>\nreturn %r : tensor<4xf32>"
    )
    args = (np.array([3, 1, 5, 5], np.float32), np.array([10, 20], np.float32))
    expected = np.array([2, 12, 22, 2], np.float32)
    signature = "(%a: tensor<4xf32>, %s: tensor<2xf32>) -> tensor<4xf32>"
    return TextCase(name, signature, body, args, (expected,), SELECT_AND_SCATTER)


TABLE = rng.integers(0, 100, (4, 3)).astype(np.int32)
FLOATS = rng.normal(size=(4, 3)).astype(np.float32)
MIXED = (
    "%p = stablehlo.multiply %x0, %x1 : tensor<f32>\n%q = stablehlo.add %p, %x1 : tensor<f32>\n"
    "stablehlo.return %q : tensor<f32>"
)
TEXTS = [
    _reduce(
        "xor",
        1,
        "%z = stablehlo.xor %x0, %x1 : tensor<i32>\nstablehlo.return %z : tensor<i32>",
        "%i = stablehlo.constant dense<0> : tensor<i32>",
        "4x3x",
        "i32",
        (TABLE,),
        (np.bitwise_xor.reduce(TABLE, 0),),
    ),
    _reduce(
        "from another start than the neutral one",
        1,
        "%z = stablehlo.maximum %x1, %x0 : tensor<f32>\nstablehlo.return %z : tensor<f32>",
        "%i = stablehlo.constant dense<0.25> : tensor<f32>",
        "4x3x",
        "f32",
        (FLOATS,),
        (np.maximum(FLOATS.max(0), np.float32(0.25)),),
    ),
    _reduce(
        "two at once",
        2,
        "%s = stablehlo.add %x0, %x2 : tensor<f32>\n%m = stablehlo.minimum %x1, %x3 : tensor<f32>\n"
        "stablehlo.return %s, %m : tensor<f32>, tensor<f32>",
        "%i = stablehlo.constant dense<1.0> : tensor<f32>\n%j = stablehlo.constant dense<9.0> : tensor<f32>",
        "4x3x",
        "f32",
        (FLOATS, FLOATS * 2),
        (FLOATS.sum(0) + np.float32(1), (FLOATS * 2).min(0)),
    ),
    TextCase(
        "reduce_window by any region, dilated",
        "(%a: tensor<7xf32>) -> tensor<3xf32>",
        "%i = stablehlo.constant dense<0.0> : tensor<f32>\n"
        '%r = "stablehlo.reduce_window"(%a, %i) <{window_dimensions = array<i64: 2>, window_strides = '
        "array<i64: 2>, "
        "window_dilations = array<i64: 2>, padding = dense<[[0, 0]]> : tensor<1x2xi64>}> ({\n"
        f"^bb0(%x0: tensor<f32>, %x1: tensor<f32>):\n{MIXED}\n"
        "}) : (tensor<7xf32>, tensor<f32>) -> tensor<3xf32>\nreturn %r : tensor<3xf32>",
        (np.arange(1, 8, dtype=np.float32),),
        (np.array([1 * 3 + 3, 3 * 5 + 5, 5 * 7 + 7], np.float32),),
        WINDOW,
    ),
    _select_and_scatter("the smallest, onto another start than 0", "LE", "2.0"),
    TextCase(
        "map",
        "(%a: tensor<4x3xf32>, %b: tensor<4x3xf32>) -> tensor<4x3xf32>",
        '%r = "stablehlo.map"(%a, %b) <{dimensions = array<i64: 0, 1>}> ({\n'
        f"^bb0(%x0: tensor<f32>, %x1: tensor<f32>):\n{MIXED}\n"
        "}) : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>\nreturn %r : tensor<4x3xf32>",
        (FLOATS, FLOATS + 1),
        (FLOATS * (FLOATS + 1) + FLOATS + 1,),
        ("stablehlo.map",),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_tensorflow(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.name)
def test_agrees_with_numpy(case: TextCase) -> None:
    case.check()


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.name)
def test_a_program_can_be_forgotten(case: TextCase) -> None:
    """JAX keeps thousands of functions that reduce: they must not keep the program, nor its variables on the device."""
    module = case.parse()
    forgotten = weakref.ref(module)
    assert traced_module(module, *case.args).eqns
    del module
    gc.collect()
    assert forgotten() is None


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_a_plain_reduction_is_one_primitive(name: str) -> None:
    module = lowered(_over(getattr(tf, f"reduce_{name}")), tf.constant(X))
    assert [str(equation.primitive) for equation in traced_module(module, X).eqns] == [f"reduce_{name}"]


@pytest.mark.parametrize(("direction", "scatter"), [("NE", "add"), ("GE", "multiply")])
def test_another_select_and_scatter_is_refused(direction: str, scatter: str) -> None:
    case = _select_and_scatter("", direction, "0.0", scatter)
    with pytest.raises(NotImplementedError, match="select_and_scatter"):
        traced_module(case.parse(), *case.args)
