"""Ops of which XLA's numbers are not those of TensorFlow's CPU kernels: on the device they are the latter's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.one_ipu import strategy
from tests.helpers.ops_parity import on_device

__all__ = ["strategy"]

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
NAN, INF = np.nan, np.inf


def extremes(dtype: str) -> np.ndarray:
    """Integers of which few have a sum that the dtype does not have."""
    of = np.iinfo(dtype)
    rows = [[of.max] * 4, [of.max, of.max, of.max - 1, 0], [of.min, of.min, of.min, 1], [of.min, of.max, 1, 1]]
    return np.array(rows, dtype) if dtype != "int64" else np.array(rows, dtype) // 4


MEANS: dict[str, Callable[[Any], Any]] = {
    "of all": tf.reduce_mean,
    "of rows": lambda x: tf.reduce_mean(x, 1),
    "of columns, kept": lambda x: tf.reduce_mean(x, [0], keepdims=True),
    "of no axis": lambda x: tf.reduce_mean(x, []),
    "named": lambda x: tf.reduce_mean(x, -1, name="means"),
}


def assert_same(strategy: Any, function: Callable[..., Any], *args: Any) -> None:
    wanted = tf.nest.flatten(function(*[tf.constant(arg) for arg in args]))
    for got, stock in zip(tf.nest.flatten(on_device(strategy, function, *args)), wanted, strict=True):
        assert (got.dtype, got.shape) == (stock.dtype.as_numpy_dtype, stock.shape)
        np.testing.assert_array_equal(got, stock)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_means_of_integers_do_not_wrap_around(strategy: Any, dtype: str) -> None:
    assert_same(strategy, lambda x: [mean(x) for mean in MEANS.values()], extremes(dtype))


def test_means_of_many_short_integers_do_not_wrap_around(strategy: Any) -> None:
    """Their sum has more than 32 bits."""
    assert_same(strategy, tf.reduce_mean, np.full(2**17, np.iinfo(np.int16).max, np.int16))


def test_means_of_floats_are_one_op(strategy: Any) -> None:
    """Nothing is added to them."""
    ops: list[str] = []

    def program(x: tf.Tensor) -> tf.Tensor:
        mean = tf.reduce_mean(x)
        ops.extend(op.type for op in mean.graph.get_operations())
        return mean

    assert on_device(strategy, program, np.ones(3, np.float32)) == 1.0
    assert ops.count("Mean") == 1 and set(ops) <= {"Placeholder", "Const", "Mean"}


SCORES = np.array(
    [[-1, -2, -3], [1, 2, 3], [-INF, 1, 2], [NAN, 1, 2], [1, INF, 0], [1, 1, 1], [3, 2, INF], [0, -0.0, -1]], np.float32
)
TARGETS: dict[str, list[int]] = {
    "classes": [0, 1, 2, 2, 0, 2, 1, 1],
    "no classes": [7, -1, 3, -(2**31), 2**31 - 1, -1, 3, -1],
}


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_targets_that_are_no_class_are_not_among_the_greatest(strategy: Any, targets: str, dtype: str) -> None:
    def found(scores: Any, targets: Any) -> list[Any]:
        return [tf.math.in_top_k(targets, scores, k) for k in (1, 2, 3, 4)]

    assert_same(strategy, found, SCORES, np.array(TARGETS[targets], dtype))


SORTED = np.array([[2, 4, 8], [-INF, 0, INF]])
SEARCHED = np.array([[NAN, 4, -1, 9], [NAN, INF, -INF, -0.0]])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_nan_is_found_where_tensorflow_finds_it(strategy: Any, dtype: str, side: str) -> None:
    def found(rows: Any, values: Any) -> list[Any]:
        return [
            tf.searchsorted(rows, values, side),
            tf.searchsorted(rows[0], values[0], side, out_type=tf.int64),
        ]

    assert_same(strategy, found, SORTED.astype(dtype), SEARCHED.astype(dtype))


def test_integers_are_searched_for(strategy: Any) -> None:
    assert_same(strategy, lambda s, v: tf.searchsorted(s, v, "right"), np.array([2, 4, 8]), np.array([1, 4, 9, 2]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_buckets_are_tensorflows(strategy: Any, dtype: str) -> None:
    def found(x: Any) -> list[Any]:
        numbers = [tf.cast(each, dtype) for each in (x, tf.constant([0.1, 2**24 + 1], tf.float64))]
        limits: tuple[list[float], ...] = ([0.1, 2.0, 3.0, 2.0**24], [0.0], [])
        return [tf.raw_ops.Bucketize(input=each, boundaries=limit) for each in numbers for limit in limits]

    assert_same(strategy, found, np.array([[NAN, INF, -INF], [0.1, -0.1, 3], [2, 2**24 + 2, 5]], np.float32))


def test_nan_is_in_the_last_bucket_of_keras(strategy: Any) -> None:
    assert_same(strategy, lambda x: keras.ops.digitize(x, [2, 4, 8]), np.array([NAN, 1, 4, 9], np.float32))


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_zeros_of_both_signs_keep_their_order(strategy: Any, dtype: str) -> None:
    """As masks leave them."""
    rng = np.random.default_rng(0)
    numbers = rng.choice([-2, -1, 0, 1], (6, 40)) * rng.choice([0, -0.0, 1], (6, 40))

    def found(x: Any) -> list[Any]:
        places = [tf.argsort(x, direction=way, stable=True) for way in ("ASCENDING", "DESCENDING")]
        found = [tf.math.top_k(x, 7), tf.math.top_k(x, 40, index_type=tf.int64)]
        bits = [tf.bitcast(each.values, f"int{8 * x.dtype.size}") for each in found]
        return [*places, *bits, *[each.indices for each in found], tf.sort(x), tf.math.top_k(x, 7).values]

    assert_same(strategy, found, tf.cast(numbers, dtype).numpy())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_the_greatest_are_tensorflows(strategy: Any, dtype: str) -> None:
    def gradients(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.math.top_k(x, 3).values * tf.constant([1, 2, 3], x.dtype))
        return tape.gradient(total, x)

    assert_same(strategy, gradients, tf.cast([[5, -0.0, 0, 3, 0], [1, 2, 3, 4, 5]], dtype).numpy())
