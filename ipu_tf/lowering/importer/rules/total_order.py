"""Converts floats to integers of the same total order, and back: -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax


def to_ordered_bits(values: jax.Array) -> jax.Array:
    """Converts floats to signed integers of the same width and total order."""
    bits = np.dtype(values.dtype).itemsize * 8
    return _with_negatives_turned(lax.bitcast_convert_type(values, np.dtype(f"int{bits}")))


def from_ordered_bits(ordered: jax.Array, dtype: np.dtype) -> jax.Array:
    """Converts ordered integers back to floats; inverse of `to_ordered_bits`."""
    return lax.bitcast_convert_type(_with_negatives_turned(ordered), dtype)


def with_equal_zeros(ordered: jax.Array) -> jax.Array:
    """Replaces the integer of -0, which comes directly before that of +0, by the latter."""
    return lax.select(lax.eq(ordered, _full(ordered, -1)), _full(ordered, 0), ordered)


def _with_negatives_turned(integers: jax.Array) -> jax.Array:
    """Flips all bits but the sign of negative numbers, whose magnitude counts backwards. Its own inverse."""
    kind = np.dtype(integers.dtype)
    sign = lax.shift_right_arithmetic(integers, _full(integers, kind.itemsize * 8 - 1))
    return lax.bitwise_xor(integers, lax.bitwise_and(sign, _full(integers, np.iinfo(kind).max)))


def _full(like: jax.Array, value: int) -> np.ndarray:
    return np.broadcast_to(np.array(value, like.dtype), like.shape)
