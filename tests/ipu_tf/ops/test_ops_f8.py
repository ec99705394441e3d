"""8-bit floating-point numbers: every float16 against ml_dtypes; products and convolutions against plain TensorFlow."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops import f8_ops
from ipu_tf.ops.f8_ops import Format, QuarterTensor, convert_from_f8, convert_to_f8, create_metadata
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.ops_parity import on_device

Strategy = ipu.ipu_strategy.IPUStrategyV1
FORMATS = {Format.F143: ml_dtypes.float8_e4m3fnuz, Format.F152: ml_dtypes.float8_e5m2fnuz}
HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


@pytest.mark.parametrize("scale", [-32, -3, 0, 5, 31])
@pytest.mark.parametrize("fmt", Format)
def test_every_half(strategy: Strategy, fmt: Format, scale: int) -> None:  # noqa: F811
    def function(values: tf.Tensor, metadata: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        quarters = convert_to_f8(values, metadata)
        return quarters.data, convert_from_f8(quarters, tf.float32)

    dtype = FORMATS[fmt]
    largest = float(ml_dtypes.finfo(dtype).max)
    with np.errstate(invalid="ignore"):
        wide = np.clip(HALVES.astype(np.float64) * 2.0**-scale, -largest, largest)
        wanted = wide.astype(np.float32).astype(dtype)
        back = np.clip(wanted.astype(np.float32) * np.float32(2.0**scale), -65504, 65504).astype(np.float16)
    metadata = np.uint8(create_metadata(fmt, scale))
    data, values = on_device(strategy, function, HALVES, metadata)
    np.testing.assert_array_equal(data, wanted.view(np.uint8))
    np.testing.assert_array_equal(values, back.astype(np.float32))


def test_metadata() -> None:
    assert [create_metadata(Format.F143, scale) for scale in (0, 1, -1)] == [128, 129, 191]
    assert [create_metadata(Format.F152, scale) for scale in (0, 1, -1)] == [0, 1, 63]


def test_whole_numbers_and_single_precision() -> None:
    for values in ([-1, 1, 2, -4], [-0.75, 1.0, 2.0, -4.0]):
        tensor = tf.constant(values)
        np.testing.assert_array_equal(convert_from_f8(convert_to_f8(tensor, 129), tensor.dtype), tensor)


def test_quarter_tensors() -> None:
    quarters = convert_to_f8(tf.constant([1.0, 2.0]), create_metadata(Format.F143))
    other = QuarterTensor(np.zeros(2, np.uint8), 0)
    assert quarters != other and quarters != 3
    other.assign(quarters.numpy())
    assert quarters == other
    assert (quarters.shape, quarters.dtype, len(quarters)) == ([2], tf.uint8, 2)
    assert int(quarters[0]) == int(quarters.numpy()[0][0])
    data, metadata = quarters
    assert (data.shape, int(metadata)) == ([2], 128)
    assert "QuarterTensor(data=" in repr(quarters)


def test_only_bytes_are_taken() -> None:
    with pytest.raises(TypeError, match="a tensor of type <dtype: 'float32'>, but only uint8 are supported."):
        QuarterTensor(tf.constant([1.0]), 0)


@pytest.mark.parametrize("groups", [(), (3,)])
def test_matmul(strategy: Strategy, groups: tuple[int, ...]) -> None:  # noqa: F811
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (*groups, 4, 6)), rng.integers(-4, 5, (*groups, 6, 5))

    def function(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return f8_ops.f8_matmul(convert_to_f8(a, create_metadata(Format.F143, 1)), convert_to_f8(b, 0))

    got = on_device(strategy, function, a, b)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, a @ b)


def test_matmul_of_other_ranks() -> None:
    with pytest.raises(ValueError, match="must have rank 3"):
        f8_ops.f8_matmul(tf.ones([1, 2, 2, 2]), tf.ones([2, 2]))
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Input shape must be fully defined"):
        f8_ops.f8_matmul(tf.compat.v1.placeholder(tf.float32, [None, 2]), tf.ones([2, 2]))


CONVOLUTIONS = [
    (f8_ops.f8_conv_1d, tf.nn.conv1d, (2, 7, 3), (3, 3, 4), (1, 2, 1), {}),
    (f8_ops.f8_conv_1d, tf.nn.conv1d, (2, 9, 3), (3, 3, 4), 1, {"dilations": 2}),
    (f8_ops.f8_conv_2d, tf.nn.conv2d, (2, 7, 6, 3), (3, 2, 3, 4), (1, 2, 1, 1), {}),
    (f8_ops.f8_conv_3d, tf.nn.conv3d, (1, 4, 5, 4, 2), (2, 3, 2, 2, 3), (1, 1, 2, 1, 1), {}),
]


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=["1d", "1d dilated", "2d", "3d"])
def test_convolutions(strategy: Strategy, case: tuple, padding: str) -> None:  # noqa: F811
    function, stock, shape, kernel_shape, strides, options = case
    rng = np.random.default_rng(1)
    x, kernel = (rng.integers(-4, 5, size).astype(np.float32) for size in (shape, kernel_shape))

    def quarters(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return function(convert_to_f8(x, 128), convert_to_f8(kernel, 1), strides, padding, **options)

    got = on_device(strategy, quarters, x, kernel)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, stock(x, kernel, strides, padding, **options))


def test_data_formats_of_conv_1d() -> None:
    with pytest.raises(ValueError, match="`data_format` must be 'NWC' or 'NCW'. Received: data_format=WNC"):
        f8_ops.f8_conv_1d(tf.ones([1, 2, 1]), tf.ones([1, 1, 1]), 1, "SAME", "WNC")
