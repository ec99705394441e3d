"""Matrix products and convolutions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from ipu_tf.device.program.program import LoopPart
from ipu_tf.device.run.executable import Executable
from ipu_tf.lowering.programs.build import build_program
from tests.helpers.lowering_parity import Case, TextCase, lowered, traced_module

rng = np.random.default_rng(0)
A = rng.normal(size=(3, 4)).astype(np.float32)
B = rng.normal(size=(4, 5)).astype(np.float32)
T = rng.normal(size=(2, 3, 4)).astype(np.float32)
U = rng.normal(size=(2, 4, 6)).astype(np.float32)
N = rng.integers(-9, 9, (3, 4)).astype(np.int32)
DOT, DOT_GENERAL, CONVOLUTION = ("stablehlo.dot",), ("stablehlo.dot_general",), ("stablehlo.convolution",)

CASES = [
    Case("matmul", tf.matmul, (A, B), DOT),
    Case(
        "matmul transposed",
        lambda a, b: tf.matmul(a, b, transpose_a=True, transpose_b=True),
        (A.T, B.T),
        DOT_GENERAL,
    ),
    Case(
        "matmul adjoint",
        lambda a: tf.matmul(a, a, adjoint_b=True),
        ((A + 1j * A).astype(np.complex64),),
        DOT_GENERAL,
    ),
    Case("matmul in batches", tf.matmul, (T, U), DOT_GENERAL),
    Case("matmul broadcast", tf.matmul, (T, B), ()),
    Case("matmul of integers", lambda a: tf.matmul(a, a, transpose_b=True), (N,), DOT_GENERAL, 0),
    Case(
        "matmul of bfloat16",
        tf.matmul,
        (A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)),
        DOT,
        2e-2,
    ),
    Case("matmul of half", tf.matmul, (A.astype(np.float16), B.astype(np.float16)), DOT, 2e-3),
    Case("matmul of double", tf.matmul, (A.astype(np.float64), B.astype(np.float64)), DOT, 1e-12),
    Case(
        "matmul of bytes into integers",
        lambda a: tf.matmul(a, a, transpose_b=True, output_type=tf.int32),
        (N.astype(np.int8),),
        DOT_GENERAL,
        0,
        xla=True,
    ),
    Case("matvec", tf.linalg.matvec, (A, A[0]), ()),
    Case("tensordot", lambda a, b: tf.tensordot(a, b, [[2], [1]]), (T, U), ()),
    Case("einsum", lambda a, b: tf.einsum("bij,bjk->kbi", a, b), (T, U), DOT_GENERAL),
    Case("empty", lambda a, b: tf.matmul(a[:, :0], b[:0]), (A, B), ()),
]


def _image(rank: int, channels: int) -> np.ndarray:
    return rng.normal(size=(2, *range(8, 8 - rank, -1), channels)).astype(np.float32)


def _kernel(rank: int, channels: int, filters: int) -> np.ndarray:
    return rng.normal(size=(*[3] * rank, channels, filters)).astype(np.float32)


def _with_gradients(fn: Any) -> Any:
    def run(*args: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(args)
            result = fn(*args)
            loss = tf.reduce_sum(tf.sin(result))
        return [result, *tape.gradient(loss, args)]

    return run


def _convolution(
    name: str, fn: Any, rank: int, channels: int, filters: int, inputs: int | None = None, refused: bool = False
) -> Case:
    """A convolution with its gradients.

    Without AVX-512, TensorFlow does not use oneDNN, and its own kernels refuse some gradients: those of `refused`.
    """
    args = (_image(rank, channels), _kernel(rank, inputs or channels, filters))
    return Case(name, _with_gradients(fn), args, CONVOLUTION, 1e-4, xla=refused)


CASES += [
    _convolution("conv1d", lambda x, k: tf.nn.conv1d(x, k, 2, "SAME"), 1, 3, 4),
    _convolution("conv2d", lambda x, k: tf.nn.conv2d(x, k, 1, "SAME"), 2, 3, 4),
    _convolution("conv2d strided", lambda x, k: tf.nn.conv2d(x, k, (2, 3), "VALID"), 2, 3, 4),
    _convolution("conv2d dilated", lambda x, k: tf.nn.conv2d(x, k, 1, "SAME", dilations=2), 2, 3, 4, refused=True),
    _convolution("conv2d in groups", lambda x, k: tf.nn.conv2d(x, k, 1, "VALID"), 2, 6, 4, inputs=3, refused=True),
    _convolution("conv3d", lambda x, k: tf.nn.conv3d(x, k, (1, 2, 2, 2, 1), "SAME"), 3, 2, 3),
    _convolution("depthwise", lambda x, k: tf.nn.depthwise_conv2d(x, k, (1, 2, 2, 1), "SAME"), 2, 3, 2),
    _convolution(
        "transposed",
        lambda x, k: tf.nn.conv2d_transpose(x, tf.transpose(k, (0, 1, 3, 2)), (2, 16, 14, 4), 2, "SAME"),
        2,
        3,
        4,
    ),
]


def _conv_text(name: str, attributes: str, args: tuple[Any, ...], expected: np.ndarray) -> TextCase:
    """A convolution of one channel along one dimension, laid out feature-batch-space."""
    shapes = ["x".join(map(str, array.shape)) for array in (*args, expected)]
    left, right, result = (f"tensor<{shape}xf32>" for shape in shapes)
    body = (
        f"%r = stablehlo.convolution(%a, %b) dim_numbers = [f, b, 0]x[o, i, 0]->[b, f, 0], window = "
        f"{{{attributes}}} "
        f"{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({left}, {right}) -> {result}\n"
        f"return %r : {result}"
    )
    return TextCase(name, f"(%a: {left}, %b: {right}) -> {result}", body, args, (expected,), CONVOLUTION)


LINE, TAPS = np.array([[[1, 2, 3, 4]]], np.float32), np.array([[[1, 10]]], np.float32)
TEXTS = [
    _conv_text("no attributes", "", (LINE, TAPS), np.array([[[21, 32, 43]]], np.float32)),
    _conv_text("reversed", "reverse = [true]", (LINE, TAPS), np.array([[[12, 23, 34]]], np.float32)),
    _conv_text(
        "dilated input",
        "pad = [[1, 0]], lhs_dilate = [2]",
        (LINE, TAPS),
        np.array([[[10, 1, 20, 2, 30, 3, 40]]], np.float32),
    ),
    _conv_text("cropped", "pad = [[-1, -1]]", (LINE, TAPS), np.array([[[32]]], np.float32)),
    TextCase(
        "dot of vectors",
        "(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<f32>",
        "%r = stablehlo.dot %a, %b, precision = [HIGHEST, DEFAULT] : (tensor<4xf32>, tensor<4xf32>) -> "
        "tensor<f32>\n"
        "return %r : tensor<f32>",
        (A[0], A[1]),
        (np.dot(A[0], A[1]),),
        DOT,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_tensorflow(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.name)
def test_agrees_with_numpy(case: TextCase) -> None:
    case.check()


def test_a_precision_reaches_the_product() -> None:
    equation = traced_module(TEXTS[-1].parse(), A[0], A[1]).eqns[-1]
    assert [str(part) for part in equation.params["precision"]] == ["HIGHEST", "DEFAULT"]
    plain = traced_module(lowered(tf.matmul, tf.constant(A), tf.constant(B)), A, B).eqns[-1]
    assert plain.params["precision"] is None


def test_a_prescribed_algorithm_is_refused() -> None:
    algorithm = (
        "algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, "
        "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, "
        "allow_imprecise_accumulation = false>"
    )
    types = "(tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>"
    body = f"%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], {algorithm} : {types}"
    case = TextCase(
        "",
        "(%a: tensor<3x4xf32>, %b: tensor<4x5xf32>) -> tensor<3x5xf32>",
        f"{body}\nreturn %r : tensor<3x5xf32>",
        (),
        (),
        (),
    )
    with pytest.raises(NotImplementedError, match="tf32"):
        traced_module(case.parse(), A, B)


def _gradient_of_weights(x: tf.Tensor, w: tf.Tensor, g: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(w)
        product = tf.matmul(x, w)
    return tape.gradient(product, w, g)


@pytest.mark.parametrize(
    ("samples", "weights"),
    [((8, 12, 25), (25, 6)), ((3, 8, 12, 25), (25, 6)), ((3, 8, 12, 25), (8, 25, 6))],
    ids=["a batch", "two batches", "one of two batches"],
)
def test_a_sum_of_products_is_one_product(samples: tuple[int, ...], weights: tuple[int, ...]) -> None:
    arrays = [rng.normal(size=size).astype(np.float32) for size in (samples, weights, (*samples[:-1], 6))]
    case = Case("", _gradient_of_weights, tuple(arrays), ("stablehlo.dot_general", "stablehlo.reduce"))
    case.check()
    jaxpr = traced_module(lowered(_gradient_of_weights, *arrays), *arrays)
    assert "reduce_sum" not in {equation.primitive.name for equation in jaxpr.eqns}


def test_a_sum_beside_its_products_stays_a_sum() -> None:
    """Where the products are asked for as well, they are computed anyway."""
    left, right = (rng.normal(size=size).astype(np.float32) for size in ((4, 3, 5), (4, 5, 2)))

    def both(x: tf.Tensor, y: tf.Tensor) -> Any:
        product = tf.matmul(x, y)
        return product, tf.reduce_sum(product, 0)

    Case("", both, (left, right), ("stablehlo.dot_general",)).check()
    jaxpr = traced_module(lowered(both, left, right), left, right)
    assert "reduce_sum" in {equation.primitive.name for equation in jaxpr.eqns}


PRODUCTS_BEFORE_A_LOOP = """
  %p = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<4x3x5xf32>, tensor<4x5x2xf32>) -> tensor<4x3x2xf32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %last = stablehlo.while(%v = %z) : tensor<f32>
    cond {
      %more = stablehlo.compare GT, %v, %one : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %less = stablehlo.multiply %v, %half : tensor<f32>
      stablehlo.return %less : tensor<f32>
    }
  %sum = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4x3x2xf32>, tensor<f32>) -> tensor<3x2xf32>
  return %sum, %last : tensor<3x2xf32>, tensor<f32>
"""


def test_a_sum_after_a_loop_of_products_before_it_adds_them() -> None:
    """A loop whose end depends on data divides a program: what runs after it has the products, not their operands."""
    arguments = "(%x: tensor<4x3x5xf32>, %y: tensor<4x5x2xf32>, %z: tensor<f32>)"
    case = TextCase("", f"{arguments} -> (tensor<3x2xf32>, tensor<f32>)", PRODUCTS_BEFORE_A_LOOP, (), (), ())
    left, right = (rng.normal(size=size).astype(np.float32) for size in ((4, 3, 5), (4, 5, 2)))
    program = build_program(case.parse())
    assert any(isinstance(part, LoopPart) for part in program.parts)
    total, last = Executable(program).run([left, right, np.float32(40)]).results
    np.testing.assert_allclose(total, (left @ right).sum(0), rtol=1e-5)
    assert last == 0.625
