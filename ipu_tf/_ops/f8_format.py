"""Encodes and decodes 8-bit floating-point numbers (F143, F152)."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import tensorflow as tf

_F143_BIT = 0x80
_SCALE_BITS, _SCALE_SIGN = 0x3F, 0x20
_NAN = 0x80
_CODES = 256
_LARGEST_HALF = 65504.0
#: Rows of the table: F143, F152.
_TABLE = np.stack(
    [
        np.arange(_CODES, dtype=np.uint8).view(dtype).astype(np.float32)
        for dtype in (ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz)
    ]
)


@dataclasses.dataclass(frozen=True)
class _Layout:
    """A format, chosen when the program runs: everything is a scalar tensor.

    Attributes:
        row: of the table.
        mantissa: bits of the mantissa.
        bias: of the exponent.
        scale: numbers stand for `number * scale`.
    """

    row: tf.Tensor
    mantissa: tf.Tensor
    bias: tf.Tensor
    scale: tf.Tensor

    @staticmethod
    def of(metadata: tf.Tensor) -> _Layout:
        """Reads the format from metadata."""
        bits = tf.cast(metadata, tf.int32)
        wide = tf.equal(tf.bitwise.bitwise_and(bits, _F143_BIT), 0)
        scale = tf.bitwise.bitwise_and(bits, _SCALE_BITS)
        scale -= 2 * tf.bitwise.bitwise_and(scale, _SCALE_SIGN)
        return _Layout(tf.cast(wide, tf.int32), tf.where(wide, 2, 3), tf.where(wide, 16, 8), _power_of_two(scale))


def decoded(data: tf.Tensor, metadata: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Decodes 8-bit numbers; float16 values out of range become its largest.

    Args:
        data: uint8.
        metadata: uint8 scalar.
        dtype: tf.float16 or tf.float32.
    """
    layout = _Layout.of(metadata)
    table = tf.gather(tf.constant(_TABLE), layout.row)
    numbers = tf.gather(table, tf.cast(data, tf.int32)) * layout.scale
    if dtype == tf.float16:
        numbers = tf.clip_by_value(numbers, -_LARGEST_HALF, _LARGEST_HALF)
    return tf.cast(numbers, dtype)


def encoded(values: tf.Tensor, metadata: tf.Tensor) -> tf.Tensor:
    """Encodes numbers to 8 bits, rounded to nearest even and saturated.

    Args:
        values: floats.
        metadata: uint8 scalar.

    Returns:
        uint8.
    """
    layout = _Layout.of(metadata)
    scaled = tf.cast(values, tf.float32) / layout.scale
    largest = tf.gather(tf.constant(_TABLE[:, 127]), layout.row)
    magnitude = tf.minimum(tf.abs(scaled), largest)
    lowest = 1 - layout.bias
    exponent = tf.maximum(_exponent(magnitude), lowest)
    # Below the lowest exponent numbers are evenly spaced; a mantissa that rounds up to 2 carries into the exponent.
    steps = tf.cast(tf.round(magnitude / _power_of_two(exponent - layout.mantissa)), tf.int32)
    code = tf.bitwise.left_shift(exponent - lowest, layout.mantissa + tf.zeros_like(exponent)) + steps
    code += tf.where((scaled < 0) & (code > 0), _NAN, 0)
    return tf.cast(tf.where(tf.math.is_nan(scaled), _NAN, code), tf.uint8)


def _exponent(magnitude: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.right_shift(tf.bitcast(magnitude, tf.int32), 23) - 127


def _power_of_two(exponent: tf.Tensor) -> tf.Tensor:
    """Computes a power of two exactly, which `tf.pow` does not guarantee."""
    return tf.bitcast(tf.bitwise.left_shift(exponent + 127, 23 + tf.zeros_like(exponent)), tf.float32)
