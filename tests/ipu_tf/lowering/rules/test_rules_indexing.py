"""Slices, gathers and scatters, at their edges too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.lowering_parity import Case, TextCase, lowered, traced_module

rng = np.random.default_rng(0)
X = rng.normal(size=(5, 4)).astype(np.float32)
T = rng.normal(size=(2, 6, 4)).astype(np.float32)
ROWS = np.array([3, 0, 3], np.int32)
#: Before the start, at the end, after the end.
OUTSIDE = np.array([-1, 4, 5, 100], np.int32)
U = rng.normal(size=(3, 4)).astype(np.float32)
GATHER, SCATTER = ("stablehlo.gather",), ("stablehlo.scatter",)


CASES = [
    Case("slice", lambda x: x[1:4, ::2], (X,), ("stablehlo.slice",), 0),
    Case("slice backwards", lambda x: x[::-2, 1:], (X,), ("stablehlo.slice", "stablehlo.reverse"), 0),
    Case("dynamic_slice", lambda x: tf.map_fn(lambda row: row[::-1], x), (X,), ("stablehlo.dynamic_slice",), 0),
    Case("tensor array", lambda x: tf.scan(lambda a, b: a + b, x), (X,), ("stablehlo.dynamic_update_slice",)),
    Case("roll", lambda x: tf.roll(x, 2, 0), (X,), (), 0),
    Case("gather", tf.gather, (X, ROWS), GATHER, 0),
    Case("gather along 1", lambda x, i: tf.gather(x, i, axis=1), (X, ROWS), GATHER, 0),
    Case("gather many", lambda x, i: tf.gather(x, tf.reshape(i, (3, 1)), axis=1), (T, ROWS), GATHER, 0),
    Case(
        "gather in batches",
        lambda x, i: tf.gather(x, i, batch_dims=1),
        (T, np.array([[5, 0], [2, 2]])),
        GATHER,
        0,
    ),
    Case(
        "gather in batches along 2",
        lambda x, i: tf.gather(x, i, batch_dims=1, axis=2),
        (T, np.array([[3, 0], [2, 2]])),
        GATHER,
        0,
    ),
    Case("gather_nd", tf.gather_nd, (T, np.array([[1, 5], [0, 2]], np.int32)), GATHER, 0),
    Case(
        "gather_nd in batches",
        lambda x, i: tf.gather_nd(x, i, batch_dims=1),
        (T, np.array([[[1]], [[4]]])),
        GATHER,
        0,
    ),
    Case("gather bytes", tf.gather, (X.astype(np.int8), ROWS.astype(np.int64)), GATHER, 0),
    Case("gather outside", tf.gather, (X, OUTSIDE), GATHER, 0, xla=True),
    Case("gather_nd outside", tf.gather_nd, (T, np.array([[1, 6], [2, 0], [-1, 1]])), GATHER, 0, xla=True),
    Case("embedding gradient", lambda x, i: _gradient(tf.gather, x, i), (X, ROWS), SCATTER),
    Case(
        "gather gradient along 1",
        lambda x, i: _gradient(lambda a, b: tf.gather(a, b, axis=1), x, i),
        (X, ROWS),
        (),
    ),
    Case("scatter_nd", lambda i, u: tf.scatter_nd(i[:, None], u, (5, 4)), (ROWS, U), SCATTER),
    Case(
        "scatter_nd outside",
        lambda i, u: tf.scatter_nd(i[:, None], u, (5, 4)),
        (OUTSIDE[1:], U),
        SCATTER,
        xla=True,
    ),
    Case("segment sum", lambda x, i: tf.math.unsorted_segment_sum(x, i, 6), (U, ROWS), SCATTER),
    Case("segment product", lambda x, i: tf.math.unsorted_segment_prod(x, i, 6), (U, ROWS), SCATTER),
    Case("segment maximum", lambda x, i: tf.math.unsorted_segment_max(x, i, 6), (U, ROWS), SCATTER),
    Case("segment minimum", lambda x, i: tf.math.unsorted_segment_min(x, i, 6), (U, ROWS), SCATTER),
    Case("segment of integers", lambda x, i: tf.math.unsorted_segment_max(x, i, 6), (ROWS, ROWS), SCATTER, 0),
    Case("confusion matrix", lambda a: tf.math.confusion_matrix(a, a, num_classes=6), (ROWS,), SCATTER, 0),
    Case("matrix diagonal", lambda x: tf.linalg.set_diag(x[:4], x[0]), (X,), (), 0),
]


def _gradient(fn: Any, x: Any, indices: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.sin(fn(x, indices)))
    return tf.convert_to_tensor(tape.gradient(loss, x))


def _updates(name: str) -> Any:
    return lambda x, i, u: getattr(tf, f"tensor_scatter_nd_{name}")(x, i[:, None], u)


CASES += [Case(f"scatter {name}", _updates(name), (X, ROWS + 0, U), SCATTER) for name in ("add", "sub", "max", "min")]
CASES += [Case("scatter update", _updates("update"), (X, np.array([3, 0, 2], np.int32), U), SCATTER, 0)]
CASES += [
    Case(f"scatter {name} outside", _updates(name), (X, OUTSIDE[[1, 0, 3]], U), SCATTER, xla=True)
    for name in ("add", "update", "max")
]


def _scatter(
    name: str, region: str, numbers: str, types: tuple[str, str, str], args: tuple[Any, ...], expected: Any
) -> TextCase:
    operand, indices, updates = (f"tensor<{text}>" for text in types)
    element = f"tensor<{types[0].split('x')[-1]}>"
    body = (
        f'%r = "stablehlo.scatter"(%a, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, '
        f"indices_are_sorted = false, unique_indices = false}}> ({{\n^bb0(%x: {element}, %y: {element}):\n"
        f"{region}\n"
        f"stablehlo.return %z : {element}\n}}) : ({operand}, {indices}, {updates}) -> {operand}\n"
        f"return %r : {operand}"
    )
    signature = f"(%a: {operand}, %i: {indices}, %u: {updates}) -> {operand}"
    return TextCase(name, signature, body, args, (expected,), SCATTER)


BASE, STEP = np.arange(1, 6, dtype=np.float32), np.array([10, 20, 30, 40], np.float32)
PLACES = np.array([[1], [1], [4], [7]], np.int32)
SCALAR_NUMBERS = "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
#: Windows of two rows and all columns; the last starts where one row is missing, and is dropped whole.
WINDOWS = (
    "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
    ("4x2xf32", "3x1xi32", "3x2x2xf32"),
)


def _times_plus(array: np.ndarray, places: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """old * update + old, window by window in order, skipping windows that reach outside."""
    array = array.copy()
    for place, update in zip(places.ravel(), updates, strict=True):
        rows = slice(place, place + (update.shape[0] if update.ndim == array.ndim else 1))
        if place >= 0 and rows.stop <= array.shape[0]:
            array[rows] = array[rows] * update + array[rows]
    return array


PRODUCT = "%p = stablehlo.multiply %x, %y : tensor<f32>\n%z = stablehlo.add %p, %x : tensor<f32>"
TABLE = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
BLOCKS, BLOCK_PLACES = np.arange(12, dtype=np.float32).reshape(3, 2, 2), np.array([[1], [0], [3]], np.int32)
TEXTS = [
    _scatter(
        "scatter by any region",
        PRODUCT,
        SCALAR_NUMBERS,
        ("5xf32", "4x1xi32", "4xf32"),
        (BASE, PLACES, STEP),
        _times_plus(BASE, PLACES, STEP),
    ),
    _scatter(
        "scatter windows by any region",
        PRODUCT,
        *WINDOWS,
        (TABLE, BLOCK_PLACES, BLOCKS),
        _times_plus(TABLE, BLOCK_PLACES, BLOCKS),
    ),
    _scatter(
        "scatter booleans",
        "%z = stablehlo.or %x, %y : tensor<i1>",
        SCALAR_NUMBERS,
        ("5xi1", "4x1xi32", "4xi1"),
        (BASE > 4, PLACES, STEP > 15),
        np.array([False, True, False, False, True]),
    ),
    _scatter(
        "scatter in batches",
        PRODUCT,
        "inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [1], "
        "scatter_dims_to_operand_dims = [1], index_vector_dim = 2",
        ("4x2xf32", "2x4x1xi32", "2x4xf32"),
        (
            TABLE,
            np.array([[[0], [1], [0], [5]], [[0], [0], [1], [1]]], np.int32),
            np.ones((2, 4), np.float32),
        ),
        TABLE * np.array([[4, 1], [2, 2], [2, 2], [1, 2]], np.float32),
    ),
]
GATHER_BODY = (
    '%r = "stablehlo.gather"(%a, %i) <{{dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = '
    "array<i64: "
    "{sizes}>, indices_are_sorted = false}}> : (tensor<4x2xf32>, {indices}) -> {result}\nreturn %r : {result}"
)


def _gather(name: str, numbers: str, sizes: str, shape: str, result: str, indices: Any, expected: Any) -> TextCase:
    types = {"indices": f"tensor<{shape}xi32>", "result": f"tensor<{result}xf32>"}
    body = GATHER_BODY.format(numbers=numbers, sizes=sizes, **types)
    signature = f"(%a: tensor<4x2xf32>, %i: {types['indices']}) -> {types['result']}"
    return TextCase(name, signature, body, (TABLE, np.array(indices, np.int32)), (expected,), GATHER, 0)


TEXTS += [
    _gather(
        "gather with index vectors first",
        "collapsed_slice_dims = [0, 1], start_index_map = [1, 0], index_vector_dim = 0",
        "1, 1",
        "2x3",
        "3",
        [[0, 1, 1], [3, 2, 0]],
        TABLE[[3, 2, 0], [0, 1, 1]],
    ),
    _gather(
        "gather with scalars for index vectors",
        "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1",
        "1, 2",
        "3",
        "3x2",
        [9, 0, -1],
        TABLE[[3, 0, 0]],
    ),
    _gather(
        "gather along batches",
        "collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [1], "
        "start_index_map = [1], index_vector_dim = 0",
        "1, 1",
        "1x4x3",
        "4x3",
        [[[0, 1, 0], [1, 1, 1], [0, 0, 1], [1, 0, 5]]],
        np.take_along_axis(TABLE, np.array([[0, 1, 0], [1, 1, 1], [0, 0, 1], [1, 0, 1]]), 1),
    ),
    TextCase(
        "dynamic_gather",
        "(%a: tensor<4x2xf32>, %i: tensor<3x1xi32>) -> tensor<3x2xf32>",
        "%s = stablehlo.constant dense<[1, 2]> : tensor<2xi32>\n"
        '%r = "stablehlo.dynamic_gather"(%a, %i, %s) <{dimension_numbers = #stablehlo.gather<offset_dims = '
        "[1], "
        "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = "
        "false}> : "
        "(tensor<4x2xf32>, tensor<3x1xi32>, tensor<2xi32>) -> tensor<3x2xf32>\nreturn %r : tensor<3x2xf32>",
        (TABLE, BLOCK_PLACES),
        (TABLE[[1, 0, 3]],),
        ("stablehlo.dynamic_gather",),
        0,
    ),
    TextCase(
        "dynamic_slice outside",
        "(%a: tensor<4x2xf32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<2x1xf32>",
        "%r = stablehlo.dynamic_slice %a, %i, %j, sizes = [2, 1] : (tensor<4x2xf32>, tensor<i32>, "
        "tensor<i32>) -> "
        "tensor<2x1xf32>\nreturn %r : tensor<2x1xf32>",
        (TABLE, np.int32(99), np.int32(-1)),
        (TABLE[2:4, :1],),
        ("stablehlo.dynamic_slice",),
        0,
    ),
    TextCase(
        "dynamic_update_slice outside",
        "(%a: tensor<4x2xf32>, %u: tensor<2x1xf32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<4x2xf32>",
        "%r = stablehlo.dynamic_update_slice %a, %u, %i, %j : (tensor<4x2xf32>, tensor<2x1xf32>, "
        "tensor<i32>, "
        "tensor<i32>) -> tensor<4x2xf32>\nreturn %r : tensor<4x2xf32>",
        (TABLE, np.array([[-1], [-2]], np.float32), np.int32(-1), np.int32(9)),
        (np.array([[1, -1], [3, -2], [5, 6], [7, 8]], np.float32),),
        ("stablehlo.dynamic_update_slice",),
        0,
    ),
    TextCase(
        "real_dynamic_slice",
        "(%a: tensor<4x2xf32>) -> tensor<2x1xf32>",
        "%s = stablehlo.constant dense<[0, 1]> : tensor<2xi32>\n"
        "%l = stablehlo.constant dense<[3, 2]> : tensor<2xi32>\n"
        "%t = stablehlo.constant dense<[2, 1]> : tensor<2xi32>\n"
        "%r = stablehlo.real_dynamic_slice %a, %s, %l, %t : (tensor<4x2xf32>, tensor<2xi32>, tensor<2xi32>, "
        "tensor<2xi32>) -> tensor<2x1xf32>\nreturn %r : tensor<2x1xf32>",
        (TABLE,),
        (TABLE[0:3:2, 1:2],),
        ("stablehlo.real_dynamic_slice",),
        0,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_tensorflow(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.name)
def test_agrees_with_numpy(case: TextCase) -> None:
    case.check()


def test_two_operands_are_scattered_together() -> None:
    """The region keeps the pair with the greater key, which neither operand alone could decide."""
    pair = "tensor<3xi32>, tensor<3xf32>"
    TextCase(
        "pairs",
        f"(%a: tensor<3xi32>, %b: tensor<3xf32>, %i: tensor<4x1xi32>, %u: tensor<4xi32>, %v: tensor<4xf32>) "
        f"-> ({pair})",
        f'%r:2 = "stablehlo.scatter"(%a, %b, %i, %u, %v) <{{scatter_dimension_numbers = '
        f"#stablehlo.scatter<{SCALAR_NUMBERS}>, indices_are_sorted = false, unique_indices = false}}> ({{\n"
        "^bb0(%k: tensor<i32>, %x: tensor<f32>, %l: tensor<i32>, %y: tensor<f32>):\n"
        "%c = stablehlo.compare GE, %k, %l : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "%m = stablehlo.select %c, %k, %l : tensor<i1>, tensor<i32>\n"
        "%n = stablehlo.select %c, %x, %y : tensor<i1>, tensor<f32>\n"
        "stablehlo.return %m, %n : tensor<i32>, tensor<f32>\n"
        f"}}) : ({pair}, tensor<4x1xi32>, tensor<4xi32>, tensor<4xf32>) -> ({pair})\n"
        f"return %r#0, %r#1 : {pair}",
        (
            np.array([5, 5, 5], np.int32),
            np.array([1, 2, 3], np.float32),
            np.array([[0], [1], [1], [2]], np.int32),
            np.array([4, 6, 9, 5], np.int32),
            np.array([10, 20, 30, 40], np.float32),
        ),
        (np.array([5, 9, 5], np.int32), np.array([1, 30, 3], np.float32)),
        SCATTER,
    ).check()


def test_a_slice_of_computed_bounds_is_refused() -> None:
    case = next(text for text in TEXTS if text.name == "real_dynamic_slice")
    body = case.body.replace("%s = stablehlo.constant dense<[0, 1]> : tensor<2xi32>\n", "")
    signature = case.signature.replace(")", ", %s: tensor<2xi32>)", 1)
    module = TextCase("", signature, body, (), (), ()).parse()
    with pytest.raises(NotImplementedError, match="constant slice"):
        traced_module(module, TABLE, np.array([0, 1], np.int32))


def test_one_update_a_window_needs_no_loop() -> None:
    module = lowered(_updates("add"), tf.constant(X), tf.constant(ROWS), tf.constant(U))
    names = {str(equation.primitive) for equation in traced_module(module, X, ROWS, U).eqns}
    assert "scatter-add" in names and "while" not in names
