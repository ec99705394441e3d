"""Image, math, statistics and slicing ops, and the helpers of ops, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ipu_tf as ipu
from ipu_tf.ops import image_ops, math_ops, op_util, slicing_ops, statistics_ops
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.ops_parity import assert_parity, on_device

Strategy = ipu.ipu_strategy.IPUStrategyV1
RNG = np.random.default_rng(0)


def _floats(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


# Images


@pytest.mark.parametrize(("dtype", "result"), [(np.uint8, np.float16), (np.float16, np.float16), (np.float32,) * 2])
def test_normalise_image(strategy: Strategy, dtype: type, result: type) -> None:  # noqa: F811
    image: np.ndarray = RNG.integers(0, 20, (2, 3, 3)).astype(dtype)
    offsets, scales = np.array([1, 2, 3.5], np.float32), np.array([2, -1, 0.5], np.float16)
    got = on_device(strategy, lambda x: image_ops.normalise_image(x, offsets, tf.constant(scales), 2), image)
    assert got.dtype == result
    np.testing.assert_allclose(got[..., :3], (image.astype(np.float32) * 2 - offsets) * scales, rtol=1e-3)
    np.testing.assert_array_equal(got[..., 3], 0)


@pytest.mark.parametrize(
    ("channels", "offsets", "scales", "text"),
    [
        (2, 3, 3, "The image has 2 channels, expected 3."),
        (3, 2, 3, "The channel_offsets must be the same size as the number of image channels 3, but was 2"),
        (3, 3, 4, "The channel_scales must be the same size as the number of image channels 3, but was 4"),
    ],
)
def test_normalise_image_errors(channels: int, offsets: int, scales: int, text: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        image_ops.normalise_image(np.ones((2, channels), np.float32), np.ones(offsets), np.ones(scales))


def test_normalise_image_of_another_dtype() -> None:
    with pytest.raises(TypeError, match="to `normalise_image` must be either float16, float32 or uint8."):
        image_ops.normalise_image(np.ones((2, 3), np.int32), np.ones(3), np.ones(3))


# Matrix products and segments


@pytest.mark.parametrize("dimension", ["a_columns", "a_rows_b_columns", "b_rows"])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_serialized_matmul(strategy: Strategy, dimension: str, transposed: tuple[bool, bool]) -> None:  # noqa: F811
    a, b = _floats(3, 4, 6), _floats(6, 8)
    a = a.swapaxes(1, 2) if transposed[0] else a
    b = b.T if transposed[1] else b
    assert_parity(
        strategy,
        lambda a, b: math_ops.serialized_matmul(a, b, 2, dimension, *transposed),
        lambda a, b: tf.matmul(a, b, *transposed),
        [a, b],
        1e-5,
    )
    assert "serialized_matmul.serialization_factor" in [item.name for item in ipu.emulation.ignored_arguments()]


MATMUL_ERRORS: list[tuple[tuple[int, ...], tuple[int, ...], int, str, str]] = [
    ((2, 3), (3, 4), 0, "b_rows", "serialization_factor has to be at least 1, but was 0."),
    ((3,), (3, 4), 1, "b_rows", "Expected tensor 'a' to have a minimum rank of 2"),
    ((2, 3), (3,), 1, "b_rows", "Expected tensor 'b' to have a minimum rank of 2"),
    ((2, 3), (3, 4), 1, "rows", "Invalid serialization_dimension=rows, expected one of: 'a_columns'"),
    ((2, 3), (3, 4), 3, "a_columns", r"'serialization_factor' \(3\) to divide the columns dimension of 'a' \(2\)"),
    ((2, 3), (3, 4), 2, "a_rows_b_columns", r"'serialization_factor' \(2\) to divide the rows dimension of 'a' \(3\)"),
    ((2, 3), (3, 4), 3, "b_rows", r"'serialization_factor' \(3\) to divide the rows dimension of 'b' \(4\)"),
    ((2, 3), (4, 4), 1, "a_rows_b_columns", r"columns in 'a' \(3\) to match the number of rows in 'b' \(4\)"),
]


@pytest.mark.parametrize(("a", "b", "factor", "dimension", "text"), MATMUL_ERRORS)
def test_serialized_matmul_errors(a: Any, b: Any, factor: int, dimension: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        math_ops.serialized_matmul(_floats(*a), _floats(*b), factor, dimension)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_segment_sum(strategy: Strategy, dtype: type) -> None:  # noqa: F811
    ids = np.array([0, 0, 1, 3, 3, 3], np.int32)
    assert_parity(
        strategy,
        lambda data: math_ops.segment_sum(data, ids, 5),
        lambda data: tf.concat([tf.math.segment_sum(data, ids), tf.zeros([1, 2, 2], dtype)], axis=0),
        [_floats(6, 2, 2, dtype=dtype)],
        2e-3,
    )


def test_segment_sum_errors() -> None:
    with tf.Graph().as_default():
        unknown = tf.compat.v1.placeholder(tf.float32, [None, 2])
        with pytest.raises(ValueError, match="Shape of data must be fully defined"):
            math_ops.segment_sum(unknown, [0, 0], 1)
        with pytest.raises(ValueError, match="Shape of segment_ids must be fully defined"):
            math_ops.segment_sum(np.ones((2, 2)), tf.cast(unknown[:, 0], tf.int32), 1)
    for data, ids, count, text in [
        (np.ones(()), [0], 1, "Shape .* must have rank at least 1"),
        (np.ones(2), [[0, 0]], 1, r"Shape \(1, 2\) must have rank 1"),
        (np.ones(2), [0, 0], 0, "num_segments must be greater than 0; got 0"),
        (np.ones(2), [0], 1, r"segment_ids \(shape \(1,\)\) must have same length as axis 0 of data \(shape \(2,\)\)"),
    ]:
        with pytest.raises(ValueError, match=text):
            math_ops.segment_sum(data, ids, count)


# Histograms


@settings(max_examples=25, deadline=None)
@given(
    inputs=st.lists(st.floats(-5, 5, width=16), min_size=1, max_size=20),
    levels=st.lists(st.floats(-5, 5, width=16), min_size=1, max_size=6).map(sorted),
    absolute=st.booleans(),
)
def test_histogram_counts_like_numpy(inputs: list[float], levels: list[float], absolute: bool) -> None:
    got = statistics_ops.histogram(tf.constant(inputs, tf.float16), tf.constant(levels, tf.float16), absolute)
    values = np.abs(inputs) if absolute else np.array(inputs)
    bins = np.searchsorted(levels, values, side="right")
    assert got.dtype == tf.float32
    np.testing.assert_array_equal(got, np.bincount(bins, minlength=len(levels) + 1))


def test_histograms_add_up(strategy: Strategy) -> None:  # noqa: F811
    def function(first: tf.Tensor, second: tf.Tensor) -> tuple[tf.Tensor, ...]:
        levels = statistics_ops.fixed_width_bins(first, 5)
        updated = statistics_ops.histogram_update(statistics_ops.histogram(first, levels), second, levels)
        together = statistics_ops.histogram(tf.concat([first, second], axis=0), levels)
        return levels, updated, together, statistics_ops.histogram_normalize(together)

    first, second = _floats(30), _floats(20)
    levels, updated, together, shares = on_device(strategy, function, first, second)
    np.testing.assert_allclose(levels, np.linspace(first.min(), first.max(), 5), rtol=1e-5)
    np.testing.assert_array_equal(updated, together)
    np.testing.assert_allclose(shares, together / 50, rtol=1e-6)


VECTOR, MATRIX, WHOLE = np.ones(3, np.float32), np.ones((1, 3), np.float32), np.ones(3, np.int32)
HISTOGRAM_ERRORS: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (statistics_ops.histogram, (WHOLE, VECTOR), "Only float16 and float32 types are supported for histogram comp"),
    (statistics_ops.histogram, (VECTOR, MATRIX), "histogram expects rank-1 tensor inputs."),
    (statistics_ops.histogram_update, (WHOLE, VECTOR, VECTOR), "hist must be of float32 type"),
    (statistics_ops.histogram_update, (VECTOR, WHOLE, VECTOR), "Only float16 and float32 types are supported for h"),
    (statistics_ops.histogram_update, (MATRIX, VECTOR, VECTOR), "histogram_update expects rank-1 tensor inputs."),
    (statistics_ops.histogram_update, (VECTOR, VECTOR, VECTOR), "For n levels, hist must have n.1 elements."),
]


@pytest.mark.parametrize(("function", "args", "text"), HISTOGRAM_ERRORS)
def test_histogram_errors(function: Callable[..., Any], args: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        function(*args)


# Slices of sequences


def _sliced(dst: np.ndarray, src: np.ndarray, runs: list[tuple[int, int, int]], zero_unused: bool) -> np.ndarray:
    result = np.zeros_like(dst) if zero_unused else dst.copy()
    for count, source, target in runs:
        result[target : target + count] = src[source : source + count]
    return result


@settings(max_examples=25, deadline=None)
@given(data=st.data(), zero_unused=st.booleans())
def test_sequence_slice_copies_runs(data: st.DataObject, zero_unused: bool) -> None:
    dst, src = np.arange(18).reshape(9, 2), -np.arange(1, 15).reshape(7, 2)
    runs = []
    for _ in range(data.draw(st.integers(1, 4))):
        count = data.draw(st.integers(0, 5))
        runs.append((count, data.draw(st.integers(0, 7 - count)), data.draw(st.integers(0, 9 - count))))
    counts, sources, targets = (list(column) for column in zip(*runs, strict=True))
    got = slicing_ops.sequence_slice(dst, src, counts, sources, targets, zero_unused)
    np.testing.assert_array_equal(got, _sliced(dst, src, runs, zero_unused))


@pytest.mark.parametrize("zero_unused", [False, True])
def test_sequence_slice_on_the_device(strategy: Strategy, zero_unused: bool) -> None:  # noqa: F811
    def reference(dst: tf.Tensor, src: tf.Tensor) -> tf.Tensor:
        kept = tf.zeros_like(dst) if zero_unused else dst
        return tf.concat([src[2:4], kept[2:3], src[1:3]], axis=0)

    assert_parity(
        strategy,
        lambda dst, src: slicing_ops.sequence_slice(dst, src, [2, 2], [2, 1], [0, 3], zero_unused),
        reference,
        [_floats(5, 3), _floats(4, 3)],
        1e-6,
    )


def test_unpacking_and_packing_are_opposites(strategy: Strategy) -> None:  # noqa: F811
    def function(padded: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        starts = tf.range(3) * 4
        packed = slicing_ops.sequence_slice_unpack(padded, lengths, starts, 8)
        return packed, slicing_ops.sequence_slice_pack(tf.zeros_like(padded), packed, lengths, starts, True)

    lengths = np.array([3, 1, 4], np.int32)
    mask = (np.arange(4) < lengths[:, None]).reshape(12, 1)
    padded = _floats(12, 2) * mask
    packed, again = on_device(strategy, function, padded, lengths)
    np.testing.assert_array_equal(packed, padded[mask[:, 0]])
    np.testing.assert_array_equal(again, padded)


ROWS = np.ones((4, 2), np.float32)
SLICE_ERRORS: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (slicing_ops.sequence_slice, (ROWS, ROWS, [1], [1, 2], [1], True), "num_elems, src_offsets and dst_offsets must"),
    (slicing_ops.sequence_slice, (ROWS, ROWS[:, :1], [1], [1], [1], True), "src and dst inner shapes must match."),
    (slicing_ops.sequence_slice_unpack, (ROWS, [], [], 3), "num_elems and src_offsets must have matching, nonzero"),
    (slicing_ops.sequence_slice_pack, (ROWS, ROWS, [1], [1, 2], True), "num_elems and dst_offsets must have matching"),
    (slicing_ops.sequence_slice_pack, (ROWS, ROWS[:, :1], [1], [1], True), "src and dst inner shapes must match."),
]


@pytest.mark.parametrize(("function", "args", "text"), SLICE_ERRORS)
def test_slice_errors(function: Callable[..., Any], args: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        function(*args)


# Helpers


def test_activation_names() -> None:
    named = ["tanh", tf.tanh, tf.nn.relu, tf.keras.activations.hard_sigmoid]
    assert [op_util.get_activation_name(name) for name in named] == ["tanh", "tanh", "relu", "hard_sigmoid"]
    tf_keras = pytest.importorskip("tf_keras", reason="Keras 2 is the package tf_keras, which only its programs need")
    assert op_util.get_activation_name(tf_keras.activations.tanh) == "tanh"
    with pytest.raises(TypeError, match="Unrecognized function : .*mine"):

        def mine(x: float) -> float:
            return x

        op_util.get_activation_name(mine)
    with pytest.raises(TypeError, match="Could not interpret activation function identifier: 3"):
        op_util.get_activation_name(3)  # type: ignore[arg-type]


def test_three_states() -> None:
    states = [op_util.bool_to_three_state(value) for value in (True, False, None)]
    assert states == ["THREESTATE_ON", "THREESTATE_OFF", "THREESTATE_UNDEFINED"]
    assert op_util.bool_to_three_state(None, "THREESTATE_OFF") == "THREESTATE_OFF"


def test_accumulator_dtypes() -> None:
    variable = tf.Variable(1.0, dtype=tf.float16)
    overrides = [None, tf.float32, "float32", np.float32, lambda given: given.dtype, lambda given: None]
    dtypes = [op_util.get_accumulator_dtype(variable, override) for override in overrides]
    assert dtypes == [tf.float16, tf.float32, tf.float32, tf.float32, tf.float16, tf.float16]
    with pytest.raises(TypeError, match="Cannot convert"):
        op_util.get_accumulator_dtype(variable, object())


def test_gradients_within_the_override_scope() -> None:
    with op_util.gradient_override_scope(training=True), tf.GradientTape() as tape:
        x = tf.constant(3.0)
        tape.watch(x)
        y = x * x
    assert float(tape.gradient(y, x)) == 6
