"""float8 (F143, F152) conversion, matmul and convolution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._arguments.named_int_enum import NamedIntEnum
from ipu_tf._ops.f8_format import decoded, encoded

_RANK_OF_GROUPED_MATMUL = 3


class Format(NamedIntEnum):
    """Format of the 8 bits.

    Attributes:
        F143: a sign, 4 bits of exponent and 3 of mantissa; up to 240.
        F152: a sign, 5 bits of exponent and 2 of mantissa; up to 57344.
    """

    F143 = 0
    F152 = 1


def create_metadata(fmt: Format, scale: int = 0) -> int:
    """Format and scale in 8 bits: numbers stand for `number * 2 ** scale`, -32 <= scale < 32.

    Example:
        >>> create_metadata(Format.F143, -1), create_metadata(Format.F152, 1)
        (191, 1)
    """
    return (128 if fmt == Format.F143 else 0) | (scale & 0x3F)


class QuarterTensor:
    """Numbers of 8 bits and their metadata.

    Attributes:
        data: uint8 tensor or variable.
        metadata: uint8 scalar, as `create_metadata` gives it.
    """

    def __init__(self, data: Any, metadata: Any) -> None:
        """
        Args:
            data: uint8, usually of `convert_to_f8`.
            metadata: of `create_metadata`.

        Raises:
            TypeError: if either is a tensor of another dtype.
        """
        self.data = _bytes(data)
        self.metadata = _bytes(metadata)

    def numpy(self) -> list[Any]:
        """Data and metadata as numpy arrays."""
        return [self.data.numpy(), self.metadata.numpy()]

    def assign(self, new_values: Sequence[Any], **kwargs: Any) -> None:
        """Assigns data and metadata, in the order in which `numpy` returns them.

        Args:
            new_values: data and metadata.
            **kwargs: accepted since Keras gives them to variables; without effect.

        Raises:
            TypeError: as the constructor.
        """
        self.data, self.metadata = _bytes(new_values[0]), _bytes(new_values[1])

    @property
    def shape(self) -> tf.TensorShape:
        """Shape of the data."""
        return self.data.shape

    @property
    def dtype(self) -> tf.DType:
        """`tf.uint8`."""
        return tf.uint8

    def __repr__(self) -> str:
        return f"QuarterTensor(data={self.data}, metadata={self.metadata})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuarterTensor):
            return NotImplemented
        return all((mine == theirs).all() for mine, theirs in zip(self.numpy(), other.numpy(), strict=True))

    __hash__ = None  # type: ignore[assignment] # it can change

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> tf.Tensor:
        return self.data[index]

    def __iter__(self) -> Iterator[tf.Tensor]:
        return iter([self.data, self.metadata])


def _bytes(data: Any) -> Any:
    if isinstance(data, (int, np.ndarray, np.generic)):
        data = tf.convert_to_tensor(data, tf.uint8)
    if data.dtype != tf.uint8:
        raise TypeError(
            f"Trying to set/update QuarterTensor data with a tensor of type {data.dtype}, but only uint8 are "
            "supported. Check that data is a value returned by `convert_to_f8`"
        )
    return data


def convert_to_f8(values: Any, metadata: Any, name: str | None = None) -> QuarterTensor:
    """Rounds numbers to 8 bits, to nearest even, after rounding them to float16.

    Numbers beyond the format's largest become the largest; NaN stays NaN.

    Args:
        values: numbers of any dtype.
        metadata: of `create_metadata`; may be a tensor.
        name: of the op.

    Example:
        >>> quarters = convert_to_f8([1.0, 1.06, 1000.0], create_metadata(Format.F143))
        >>> convert_from_f8(quarters).numpy().tolist()
        [1.0, 1.0, 240.0]
    """
    with tf.name_scope(name or "convert_to_f8"):
        metadata = tf.convert_to_tensor(metadata, tf.uint8)
        return QuarterTensor(encoded(tf.cast(values, tf.float16), metadata), metadata)


def convert_from_f8(packed_input: Any, dtype: tf.DType = tf.half, name: str | None = None) -> tf.Tensor:
    """The numbers that 8 bits stand for, by way of float16.

    Args:
        packed_input: of `convert_to_f8`, or data and metadata.
        dtype: of the result.
        name: of the op.
    """
    data, metadata = packed_input
    with tf.name_scope(name or "convert_from_f8"):
        half = decoded(tf.convert_to_tensor(data), tf.convert_to_tensor(metadata, tf.uint8), tf.float16)
        return tf.cast(half, dtype)


def canonicalise_input(
    inp: Any, expected_rank: int = _RANK_OF_GROUPED_MATMUL, name: str = "MatMulCanonicalise"
) -> list[tf.Tensor]:
    """Data and metadata of an argument; a matrix becomes a group of one matrix.

    Raises:
        ValueError: if the shape is not fully known, or of another rank.
    """
    data, metadata = inp if isinstance(inp, QuarterTensor) else (tf.convert_to_tensor(inp), tf.constant(0, tf.uint8))
    if not data.shape.is_fully_defined():
        raise ValueError(f"Input shape must be fully defined: {data}")
    data = tf.expand_dims(data, 0, name=name) if data.shape.rank == 2 else data
    data.shape.assert_has_rank(expected_rank)
    return [data, metadata]


def canonicalise_output(output: Sequence[tf.Tensor], lhs: Any) -> tf.Tensor:
    """The first of the results, as a matrix if `lhs` was one."""
    return tf.squeeze(output[0], axis=0) if len(lhs.shape) == 2 else output[0]


def f8_matmul(lhs: Any, rhs: Any, name: str = "f8_matmul") -> tf.Tensor:
    """Product of matrices, or of groups of matrices, of 8-bit numbers; summed in float32.

    Args:
        lhs: `[m, k]` or `[groups, m, k]`, a `QuarterTensor`, or a tensor of floats.
        rhs: `[k, n]` or `[groups, k, n]`, likewise.
        name: of the op.

    Returns:
        float16.

    Raises:
        ValueError: if a shape is not fully known, or of another rank.
    """
    product = tf.matmul(*(_numbers(side, _RANK_OF_GROUPED_MATMUL) for side in (lhs, rhs)), name=name)
    return canonicalise_output([tf.cast(product, tf.float16)], lhs)


def f8_conv_1d(
    inputs: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NWC",
    dilations: Any = (1,),
    name: str = "f8_conv_1d",
) -> tf.Tensor:
    """Convolution along one dimension of 8-bit numbers; arguments as for `tf.nn.conv1d`.

    Returns:
        float16.

    Raises:
        ValueError: if the data format is not `NWC` or `NCW`.
    """
    if data_format not in ("NWC", "NCW"):
        raise ValueError(f"`data_format` must be 'NWC' or 'NCW'. Received: data_format={data_format}")
    operands = _numbers(inputs, 3), _numbers(filters, 3)
    # One number, or a list of one, is for the width; the dilations may be the same list.
    dilations = dilations[0] if isinstance(dilations, (list, tuple)) and len(dilations) == 1 else dilations
    result = tf.nn.conv1d(*operands, strides, padding, data_format, dilations, name=name)
    return tf.cast(result, tf.float16)


def f8_conv_2d(
    inputs: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str = "f8_conv_2d",
) -> tf.Tensor:
    """Convolution along two dimensions of 8-bit numbers; arguments as for `tf.nn.conv2d`.

    Returns:
        float16.
    """
    operands = _numbers(inputs, 4), _numbers(filters, 4)
    return tf.cast(tf.nn.conv2d(*operands, strides, padding, data_format, dilations, name=name), tf.float16)


def f8_conv_3d(
    inputs: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NDHWC",
    dilations: Any = (1, 1, 1, 1, 1),
    name: str = "f8_conv_3d",
) -> tf.Tensor:
    """Convolution along three dimensions of 8-bit numbers; arguments as for `tf.nn.conv3d`.

    Returns:
        float16.
    """
    operands = _numbers(inputs, 5), _numbers(filters, 5)
    return tf.cast(tf.nn.conv3d(*operands, strides, padding, data_format, dilations, name=name), tf.float16)


def _numbers(argument: Any, rank: int) -> tf.Tensor:
    """An argument as float32."""
    data, metadata = canonicalise_input(argument, rank)
    return decoded(data, metadata, tf.float32) if isinstance(argument, QuarterTensor) else tf.cast(data, tf.float32)
