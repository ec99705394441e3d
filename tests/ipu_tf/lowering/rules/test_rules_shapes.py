"""Constants, ops that move elements, and ops that only hold values together."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.lowering_parity import Case, TextCase, lowered, traced_module

rng = np.random.default_rng(0)
X = rng.normal(size=(3, 4)).astype(np.float32)
T = rng.normal(size=(2, 6, 4)).astype(np.float32)
IMAGE = rng.normal(size=(2, 4, 6, 4)).astype(np.float32)
N = np.arange(12, dtype=np.int32).reshape(3, 4)

CASES = [
    Case("reshape", lambda x: tf.reshape(x, (2, 6)), (X,), ("stablehlo.reshape",), 0),
    Case("transpose", lambda x: tf.transpose(x, (2, 0, 1)), (T,), ("stablehlo.transpose",), 0),
    Case("broadcast_to", lambda x: tf.broadcast_to(x, (5, 3, 4)), (X,), ("stablehlo.broadcast_in_dim",), 0),
    Case("concatenate", lambda x: tf.concat([x, x * 2, x], 1), (X,), ("stablehlo.concatenate",), 0),
    Case("concatenate nothing", lambda x: tf.concat([x[:0], x], 0), (X,), (), 0),
    Case("reverse", lambda x: tf.reverse(x, [0, 2]), (T,), ("stablehlo.reverse",), 0),
    Case(
        "pad at the edges",
        lambda x: tf.pad(x, [[1, 2], [0, 3]], constant_values=7.0),
        (X,),
        ("stablehlo.pad",),
        0,
    ),
    Case("mirror pad", lambda x: tf.pad(x, [[1, 2], [0, 3]], "REFLECT"), (X,), ("stablehlo.reverse",), 0),
    Case("tile", lambda x: tf.tile(x, [2, 3]), (X,), (), 0),
    Case("stack and split", lambda x: tf.split(tf.stack([x, x], 1), 2, 2), (X,), ("stablehlo.slice",), 0),
    Case("depth to space", lambda x: tf.nn.depth_to_space(x, 2), (IMAGE,), ("stablehlo.transpose",), 0),
    Case("space to batch", lambda x: tf.space_to_batch(x, [2, 2], [[0, 0], [1, 1]]), (IMAGE,), (), 0),
    Case("iota", lambda x: tf.one_hot(x, 5), (N,), ("stablehlo.iota",), 0),
    Case("constant", lambda x: x + np.arange(12, dtype=np.int32).reshape(3, 4), (N,), ("stablehlo.constant",)),
    Case("set_dimension_size", lambda x: tf.math.top_k(x, 2), (X,), ("stablehlo.set_dimension_size",), 0),
    Case(
        "adjoint of a slice pads inside",
        lambda x: tf.raw_ops.StridedSliceGrad(shape=[7], begin=[1], end=[7], strides=[2], dy=x),
        (X[:, 0].copy(),),
        ("stablehlo.pad",),
        0,
    ),
]


def _constants(dtype: Any) -> list[Case]:
    """Constants long and short, of one value, and none."""
    long = np.linspace(-3, 7, 150).astype(dtype)
    if np.dtype(dtype).kind == "c":
        long = long + np.linspace(0, 1, 150).astype(dtype) * 1j
        long = long.astype(dtype)
    arrays = {
        "long": long,
        "short": long[:3],
        "splat": np.repeat(long[7:8], 9),
        "scalar": long[5],
        "none": long[:0],
    }
    return [
        Case(f"{name} constant of {np.dtype(dtype)}", lambda x, a=array: [x, tf.constant(a)], (X,), (), 0)
        for name, array in arrays.items()
    ]


for _dtype in ("float32", "float64", "float16", "int8", "int64", "uint32", "bool", "complex64", "complex128"):
    CASES += _constants(_dtype)
CASES += _constants(ml_dtypes.bfloat16)


def _text(name: str, signature: str, body: str, args: Any, expected: Any, rtol: float = 0, **more: Any) -> TextCase:
    return TextCase(name, signature, body, args, expected, (f"stablehlo.{name}",), rtol, **more)


F32 = "tensor<3x4xf32>"
TEXTS = [
    _text(
        "broadcast",
        f"(%a: {F32}) -> tensor<2x3x4xf32>",
        f"%r = stablehlo.broadcast %a, sizes = [2] : ({F32}) -> tensor<2x3x4xf32>\nreturn %r : tensor<2x3x4xf32>",
        (X,),
        (np.stack([X, X]),),
    ),
    _text(
        "dynamic_reshape",
        f"(%a: {F32}, %s: tensor<2xi32>) -> tensor<2x6xf32>",
        f"%r = stablehlo.dynamic_reshape %a, %s : ({F32}, tensor<2xi32>) -> tensor<2x6xf32>\n"
        "return %r : tensor<2x6xf32>",
        (X, np.array([2, 6], np.int32)),
        (X.reshape(2, 6),),
    ),
    _text(
        "dynamic_broadcast_in_dim",
        "(%a: tensor<4xf32>, %s: tensor<2xi32>) -> tensor<3x4xf32>",
        "%r = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [1] : (tensor<4xf32>, tensor<2xi32>) -> "
        "tensor<3x4xf32>\nreturn %r : tensor<3x4xf32>",
        (X[0], np.array([3, 4], np.int32)),
        (np.broadcast_to(X[0], (3, 4)),),
    ),
    _text(
        "dynamic_iota",
        "(%s: tensor<2xi32>) -> tensor<2x3xi32>",
        "%r = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi32>) -> tensor<2x3xi32>\nreturn %r : tensor<2x3xi32>",
        (np.array([2, 3], np.int32),),
        (np.array([[0, 1, 2]] * 2, np.int32),),
    ),
    _text(
        "pad",
        f"(%a: {F32}, %v: tensor<f32>) -> tensor<2x9xf32>",
        f"%r = stablehlo.pad %a, %v, low = [-2, 1], high = [1, 1], interior = [0, 1] : ({F32}, tensor<f32>) "
        f"-> "
        "tensor<2x9xf32>\nreturn %r : tensor<2x9xf32>",
        (X, np.float32(9)),
        (np.array([[9, *np.insert(X[2], [1, 2, 3], 9), 9], [9] * 9], np.float32),),
    ),
    _text(
        "dynamic_pad",
        "(%a: tensor<2xf32>, %v: tensor<f32>) -> tensor<6xf32>",
        "%l = stablehlo.constant dense<1> : tensor<1xi32>\n%h = stablehlo.constant dense<2> : tensor<1xi32>\n"
        "%r = stablehlo.dynamic_pad %a, %v, %l, %h, %l : (tensor<2xf32>, tensor<f32>, tensor<1xi32>, "
        "tensor<1xi32>,"
        " tensor<1xi32>) -> tensor<6xf32>\nreturn %r : tensor<6xf32>",
        (X[0, :2], np.float32(9)),
        (np.array([9, X[0, 0], 9, X[0, 1], 9, 9], np.float32),),
    ),
    _text(
        "get_dimension_size",
        f"(%a: {F32}) -> tensor<i32>",
        f"%r = stablehlo.get_dimension_size %a, dim = 1 : ({F32}) -> tensor<i32>\nreturn %r : tensor<i32>",
        (X,),
        (np.int32(4),),
    ),
    _text(
        "partition_id",
        "() -> tensor<ui32>",
        "%r = stablehlo.partition_id : tensor<ui32>\nreturn %r : tensor<ui32>",
        (),
        (np.uint32(0),),
    ),
    _text(
        "tuple",
        f"(%a: {F32}, %b: tensor<f32>) -> tensor<f32>",
        f"%t = stablehlo.tuple %a, %b : tuple<{F32}, tensor<f32>>\n"
        f"%r = stablehlo.get_tuple_element %t[1] : (tuple<{F32}, tensor<f32>>) -> tensor<f32>\n"
        f"return %r : tensor<f32>",
        (X, np.float32(5)),
        (np.float32(5),),
    ),
    _text(
        "optimization_barrier",
        f"(%a: {F32}) -> {F32}",
        f"%r = stablehlo.optimization_barrier %a : {F32}\nreturn %r : {F32}",
        (X,),
        (X,),
    ),
    _text(
        "after_all",
        f"(%a: {F32}) -> {F32}",
        "%t = stablehlo.create_token : !stablehlo.token\n"
        f"%u = stablehlo.after_all %t, %t : !stablehlo.token\nreturn %a : {F32}",
        (X,),
        (X,),
    ),
    _text(
        "create_token",
        f"(%a: {F32}) -> {F32}",
        f"%t = stablehlo.create_token : !stablehlo.token\nreturn %a : {F32}",
        (X,),
        (X,),
    ),
    _text(
        "composite",
        f"(%a: {F32}) -> {F32}",
        f'%r = stablehlo.composite "some.name" %a {{decomposition = @twice}} : ({F32}) -> {F32}\nreturn %r : {F32}',
        (X,),
        (X + X,),
        more=f"func.func private @twice(%a: {F32}) -> {F32} {{\n"
        f"%r = stablehlo.add %a, %a : {F32}\nreturn %r : {F32} }}",
    ),
    TextCase(
        "copy",
        f"(%a: {F32}) -> {F32}",
        f'%r = "mhlo.copy"(%a) : ({F32}) -> {F32}\nreturn %r : {F32}',
        (X,),
        (X,),
        ("mhlo.copy",),
    ),
    TextCase(
        "sharding",
        f"(%a: {F32}) -> {F32}",
        f'%r = stablehlo.custom_call @Sharding(%a) {{mhlo.sharding = "{{replicated}}"}} : ({F32}) -> {F32}\n'
        f"return %r : {F32}",
        (X,),
        (X,),
        ("@Sharding",),
    ),
    TextCase(
        "constants of rare types",
        "() -> (tensor<3xi4>, tensor<2xui4>, tensor<3xf8E4M3FN>, tensor<2xf8E5M2>, tensor<4xbf16>)",
        "%a = stablehlo.constant dense<[1, -8, 7]> : tensor<3xi4>\n"
        "%b = stablehlo.constant dense<15> : tensor<2xui4>\n"
        "%c = stablehlo.constant dense<[1.0, -0.5, 448.0]> : tensor<3xf8E4M3FN>\n"
        "%d = stablehlo.constant dense<[0.25, 0x7C]> : tensor<2xf8E5M2>\n"
        "%e = stablehlo.constant dense<[0x7F80, 0xFF80, -0.0, 1.5]> : tensor<4xbf16>\n"
        "return %a, %b, %c, %d, %e : tensor<3xi4>, tensor<2xui4>, tensor<3xf8E4M3FN>, tensor<2xf8E5M2>, "
        "tensor<4xbf16>",
        (),
        (
            np.array([1, -8, 7], ml_dtypes.int4),
            np.array([15, 15], ml_dtypes.uint4),
            np.array([1, -0.5, 448], ml_dtypes.float8_e4m3fn),
            np.array([0.25, np.inf], ml_dtypes.float8_e5m2),
            np.array([np.inf, -np.inf, -0.0, 1.5], ml_dtypes.bfloat16),
        ),
        ("stablehlo.constant",),
        0,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_tensorflow(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.name)
def test_agrees_with_numpy(case: TextCase) -> None:
    case.check()


def test_ops_that_change_nothing_emit_nothing() -> None:
    def nothing(x: Any) -> Any:
        x = tf.reshape(tf.cast(tf.identity(x), tf.float32), (3, 4))
        return tf.broadcast_to(tf.transpose(tf.pad(x, [[0, 0], [0, 0]]), (0, 1)), (3, 4))[:, :]

    module = lowered(nothing, tf.constant(X))
    assert len(module.main.operations) > 1
    assert traced_module(module, X).eqns == []


def test_a_large_constant_of_one_value_takes_no_memory() -> None:
    ones = np.ones((1000, 1000), np.float32)
    module = lowered(lambda x: x + tf.constant(2 * ones), tf.constant(ones))
    assert "dense<2.0" in str(module.mlir) and "1000x1000" in str(module.mlir)
    assert all(np.size(value) == 1 for value in traced_module(module, ones).consts)


def test_a_size_known_only_at_run_time_is_refused() -> None:
    module = lowered(lambda x: tf.reduce_sum(tf.boolean_mask(x, x > 0)), tf.constant(X))
    with pytest.raises(NotImplementedError, match="fixed shape"):
        traced_module(module, X)
