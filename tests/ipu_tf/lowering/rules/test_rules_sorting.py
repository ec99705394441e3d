"""Sorts by the usual comparators and by any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.lowering_parity import Case, TextCase, lowered, run_module, traced_module

rng = np.random.default_rng(0)
X = rng.normal(size=(3, 20)).astype(np.float32)
TIES = rng.integers(0, 4, (3, 20)).astype(np.float32)
SPECIAL = np.array([[0.0, -0.0, np.nan, 1, -np.inf, -np.nan, np.inf, -1, np.nan, -0.0, 0.0, 5]], np.float32)
N = rng.integers(-99, 99, (20, 3)).astype(np.int32)
SORT = ("stablehlo.sort",)

CASES = [
    Case("sort", tf.sort, (X,), SORT, 0),
    Case("sort descending", lambda x: tf.sort(x, direction="DESCENDING"), (X,), SORT, 0),
    Case("sort along 0", lambda x: tf.sort(x, axis=0), (N,), SORT, 0),
    Case("sort unsigned", tf.sort, (N.astype(np.uint8),), SORT, 0),
    Case("sort long", tf.sort, (N.astype(np.int64),), SORT, 0),
    Case("sort double", tf.sort, (X.astype(np.float64),), SORT, 0),
    Case("sort bfloat16", tf.sort, (X.astype(ml_dtypes.bfloat16),), SORT, 0),
    Case("sort float16", tf.sort, (X.astype(np.float16),), SORT, 0),
    Case("sort one", tf.sort, (X[:, :1],), SORT, 0),
    Case("argsort", tf.argsort, (X,), SORT, 0),
    Case("argsort of ties", lambda x: tf.argsort(x, stable=True), (TIES,), SORT, 0),
    Case("argsort descending", lambda x: tf.argsort(x, direction="DESCENDING"), (N,), SORT, 0),
    Case("sort of special values", tf.sort, (SPECIAL,), SORT, 0, xla=True),
    Case("argsort of special values", tf.argsort, (SPECIAL[:, 2:9],), SORT, 0, xla=True),
    Case("top_k", lambda x: tf.math.top_k(x, 3), (X,), SORT, 0),
    Case("top_k of ties", lambda x: tf.math.top_k(x, 5), (TIES,), SORT, 0),
    Case("top_k of special values", lambda x: tf.math.top_k(x, 6), (SPECIAL,), SORT, 0, xla=True),
    Case("top_k of all", lambda x: tf.math.top_k(x, 20), (TIES,), SORT, 0),
    Case("top_k of integers", lambda x: tf.math.top_k(x, 2), (N,), SORT, 0),
    Case("top_k of bfloat16", lambda x: tf.math.top_k(x, 2)[0], (X.astype(ml_dtypes.bfloat16),), SORT, 0),
    Case("approximate top_k", lambda x: tf.math.approx_max_k(x, 3), (X,), SORT, 0),
    Case("median", lambda x: tf.sort(x)[:, 10], (X,), SORT, 0),
    Case("searchsorted", lambda x, y: tf.searchsorted(x, y), (np.sort(X), X + 0.01), (), 0),
]

ORDERS: dict[str, Callable[[Any], Any]] = {
    "argsort": lambda x: tf.argsort(x, stable=True),
    "argsort descending": lambda x: tf.argsort(x, direction="DESCENDING", stable=True),
    "argsort along 0": lambda x: tf.argsort(x, axis=0, stable=True),
    "top_k": lambda x: tf.math.top_k(x, 7),
    "top_k of all": lambda x: tf.math.top_k(x, x.shape[1]),
    "top_k, places": lambda x: tf.math.top_k(x, 5).indices,
}
#: As masks leave them.
SIGNED_ZEROS = (rng.choice([-2, -1, 0, 1], (6, 40)) * rng.choice([0, -0.0, 1], (6, 40))).astype(np.float32)
CASES += [
    Case(f"{name} of {dtype} zeros of both signs", order, (tf.cast(SIGNED_ZEROS, dtype).numpy(),), SORT, 0)
    for name, order in ORDERS.items()
    for dtype in ("float32", "float64", "float16")
]


def _sort(
    name: str,
    region: str,
    args: tuple[Any, ...],
    expected: tuple[Any, ...],
    types: tuple[str, ...] = ("f32",),
) -> TextCase:
    """A sort along the first dimension; the region's arguments are `%x0, %y0`, `%x1, %y1`, ..."""
    shape = "x".join(map(str, args[0].shape))
    names = [f"%a{index}" for index in range(len(types))]
    arrays = [f"tensor<{shape}x{kind}>" for kind in types]
    pairs = [f"%{side}{index}: tensor<{kind}>" for index, kind in enumerate(types) for side in "xy"]
    results, count = ", ".join(arrays), len(types)
    returned = ", ".join(f"%r#{index}" for index in range(count)) if count > 1 else "%r"
    body = (
        f'%r{f":{count}" if count > 1 else ""} = "stablehlo.sort"({", ".join(names)}) <{{dimension = 0 : '
        f"i64, "
        f"is_stable = true}}> ({{\n^bb0({', '.join(pairs)}):\n{region}\nstablehlo.return %z : tensor<i1>\n"
        f"}}) : "
        f"({results}) -> ({results})\nreturn {returned} : {results}"
    )
    signature = f"({', '.join(f'{n}: {t}' for n, t in zip(names, arrays, strict=True))}) -> ({results})"
    return TextCase(name, signature, body, args, expected, SORT, 0)


def _compare(direction: str, left: str, right: str, kind: str, order: str = "") -> str:
    operands = f"(tensor<{kind}>, tensor<{kind}>) -> tensor<i1>"
    return f"%z = stablehlo.compare {direction}, {left}, {right}{order} : {operands}"


V = rng.permutation(13).astype(np.float32)
KEYS = rng.integers(0, 3, (13, 2)).astype(np.int32)
VALUES = rng.normal(size=(13, 2)).astype(np.float32)
ZEROS = np.array([0.0, -0.0, 1.0, -0.0, 0.0, -1.0], np.float32)
LEXICOGRAPHIC = (
    "%a = stablehlo.compare LT, %x0, %y0 : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    "%b = stablehlo.compare EQ, %x0, %y0 : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    "%c = stablehlo.compare GT, %x1, %y1 : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
    "%d = stablehlo.and %b, %c : tensor<i1>\n%z = stablehlo.or %a, %d : tensor<i1>"
)
BY_MAGNITUDE = "%p = stablehlo.abs %x0 : tensor<f32>\n%q = stablehlo.abs %y0 : tensor<f32>\n" + _compare(
    "LT", "%p", "%q", "f32"
)


def _lexicographic() -> tuple[np.ndarray, np.ndarray]:
    order = np.stack([np.lexsort((-VALUES[:, column], KEYS[:, column])) for column in range(2)], 1)
    return np.take_along_axis(KEYS, order, 0), np.take_along_axis(VALUES, order, 0)


def _by_second() -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-VALUES, 0, kind="stable")
    return np.take_along_axis(KEYS, order, 0), np.take_along_axis(VALUES, order, 0)


TEXTS = [
    _sort("operands the other way round", _compare("LT", "%y0", "%x0", "f32"), (V,), (np.sort(V)[::-1],)),
    _sort(
        "zeros of either sign keep their order",
        _compare("GT", "%x0", "%y0", "f32"),
        (ZEROS,),
        (ZEROS[[2, 0, 1, 3, 4, 5]],),
    ),
    _sort("by magnitude", BY_MAGNITUDE, (V - 6.25,), (sorted(V - 6.25, key=abs) * np.ones(13, np.float32),)),
    _sort("by two keys", LEXICOGRAPHIC, (KEYS, VALUES), _lexicographic(), ("i32", "f32")),
    _sort("by the second", _compare("GT", "%x1", "%y1", "f32"), (KEYS, VALUES), _by_second(), ("i32", "f32")),
    _sort("not at all", _compare("LT", "%x0", "%x0", "f32"), (V,), (V,)),
    TextCase(
        "chlo.top_k",
        "(%a: tensor<3x20xf32>) -> (tensor<3x4xf32>, tensor<3x4xi32>)",
        "%v, %i = chlo.top_k(%a, k = 4) : tensor<3x20xf32> -> (tensor<3x4xf32>, tensor<3x4xi32>)\n"
        "return %v, %i : tensor<3x4xf32>, tensor<3x4xi32>",
        (X,),
        (-np.sort(-X)[:, :4], np.argsort(-X)[:, :4].astype(np.int32)),
        ("chlo.top_k",),
        0,
    ),
    TextCase(
        "mhlo.topk",
        "(%a: tensor<3x20xf32>) -> (tensor<3x4xf32>, tensor<3x4xi32>)",
        '%v, %i = "mhlo.topk"(%a) {k = 4 : i64, largest = true} : (tensor<3x20xf32>) -> (tensor<3x4xf32>, '
        "tensor<3x4xi32>)\nreturn %v, %i : tensor<3x4xf32>, tensor<3x4xi32>",
        (X,),
        (-np.sort(-X)[:, :4], np.argsort(-X)[:, :4].astype(np.int32)),
        ("mhlo.topk",),
        0,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_tensorflow(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.name)
def test_agrees_with_numpy(case: TextCase) -> None:
    case.check()


@settings(max_examples=15, deadline=None)
@given(values=st.lists(st.floats(width=32, allow_subnormal=False), min_size=1, max_size=40))
def test_an_inconsistent_comparator_loses_no_element(values: list[float]) -> None:
    array = np.array(values, np.float32)
    case = _sort("", BY_MAGNITUDE, (array,), ())
    (found,) = run_module(case.parse(), array)
    np.testing.assert_array_equal(np.sort(found.view(np.int32)), np.sort(array.view(np.int32)))


def test_some_of_the_elements_take_no_sort() -> None:
    module = lowered(lambda x: tf.math.top_k(x, 3), tf.constant(X))
    primitives = {str(equation.primitive) for equation in traced_module(module, X).eqns}
    assert "top_k" in primitives and "sort" not in primitives


def test_the_smallest_elements_of_a_top_k_are_refused() -> None:
    case = next(text for text in TEXTS if text.name == "mhlo.topk")
    module = TextCase("", case.signature, case.body.replace("true", "false"), (), (), ()).parse()
    with pytest.raises(NotImplementedError, match="smallest"):
        traced_module(module, X)


@pytest.mark.parametrize("count", [3, 8])
def test_zeros_keep_their_signs(count: int) -> None:
    zeros = np.array([0.0, -0.0, -0.0, 1.0, 0.0, -1.0, -0.0, 0.0], np.float32)
    found = run_module(lowered(lambda x: tf.math.top_k(x, count), tf.constant(zeros)), zeros)
    wanted = tf.math.top_k(zeros, count)
    for got, stock in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got.view(np.int32), stock.numpy().view(np.int32))
