"""Histograms: bins, counts, updates and normalisation."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def fixed_width_bins(inputs: Any, n_bins: int) -> tf.Tensor:
    """`n_bins` evenly spaced levels from the smallest to the largest of `inputs`.

    Args:
        inputs: the values to be binned.
        n_bins: how many levels.

    Returns:
        `[n_bins]`, of the inputs' dtype.

    Example:
        >>> fixed_width_bins([1.0, 2.0, 5.0], 3).numpy().tolist()
        [1.0, 3.0, 5.0]
    """
    inputs = tf.convert_to_tensor(inputs)
    return tf.linspace(tf.reduce_min(inputs), tf.reduce_max(inputs), n_bins)


def histogram_normalize(hist: Any) -> tf.Tensor:
    """A histogram divided by its sum.

    Example:
        >>> histogram_normalize([1.0, 3.0]).numpy().tolist()
        [0.25, 0.75]
    """
    hist = tf.convert_to_tensor(hist)
    return hist / tf.reduce_sum(hist, axis=0)


def histogram(inputs: Any, levels: Any, absolute_of_input: bool = False) -> tf.Tensor:
    """Counts how many inputs fall between neighbouring levels.

    The first bin holds what is below the first level, the last what is at or above the last level.

    Args:
        inputs: `[n]`, float16 or float32.
        levels: `[l]`, ascending, float16 or float32.
        absolute_of_input: bin magnitudes instead.

    Returns:
        `[l + 1]` float32 counts.

    Raises:
        ValueError: for other dtypes or ranks.

    Example:
        >>> histogram([0.1, 0.6, 0.7, 2.0], [0.5, 1.0]).numpy().tolist()
        [1.0, 2.0, 1.0]
    """
    inputs, levels = tf.convert_to_tensor(inputs), tf.convert_to_tensor(levels)
    if not _floats(inputs, levels):
        raise ValueError("Only float16 and float32 types are supported for histogram computation.")
    if not _vectors(inputs, levels):
        raise ValueError("histogram expects rank-1 tensor inputs.")
    return _counts(inputs, levels, absolute_of_input)


def histogram_update(hist: Any, inputs: Any, levels: Any, absolute_of_input: bool = False) -> tf.Tensor:
    """A histogram with further inputs counted in.

    Args:
        hist: `[l + 1]` float32, as `histogram` gives it.
        inputs: `[n]`, float16 or float32.
        levels: `[l]`, ascending, float16 or float32.
        absolute_of_input: bin magnitudes instead.

    Returns:
        The new `[l + 1]` float32 counts.

    Raises:
        ValueError: for other dtypes or ranks, or if `hist` does not have one element more than `levels`.

    Example:
        >>> histogram_update([1.0, 0.0], [3.0], [2.0]).numpy().tolist()
        [1.0, 1.0]
    """
    hist, inputs, levels = (tf.convert_to_tensor(value) for value in (hist, inputs, levels))
    if hist.dtype != tf.float32:
        raise ValueError("hist must be of float32 type")
    if not _floats(inputs, levels):
        raise ValueError("Only float16 and float32 types are supported for histogram update.")
    if not _vectors(hist, inputs, levels):
        raise ValueError("histogram_update expects rank-1 tensor inputs.")
    if hist.shape.as_list()[0] != levels.shape.as_list()[0] + 1:
        raise ValueError("hist and levels shapes are incompatible. For n levels, hist must have n+1 elements.")
    return hist + _counts(inputs, levels, absolute_of_input)


def _floats(*tensors: tf.Tensor) -> bool:
    return all(tensor.dtype in (tf.float16, tf.float32) for tensor in tensors)


def _vectors(*tensors: tf.Tensor) -> bool:
    return all(tensor.shape.rank == 1 for tensor in tensors)


def _counts(inputs: tf.Tensor, levels: tf.Tensor, absolute_of_input: bool) -> tf.Tensor:
    """Differences of how many inputs reach each level."""
    inputs, levels = tf.cast(inputs, tf.float32), tf.cast(levels, tf.float32)
    inputs = tf.abs(inputs) if absolute_of_input else inputs
    reached = tf.reduce_sum(tf.cast(inputs[:, None] >= levels, tf.int32), axis=0)
    reached = tf.concat([[tf.size(inputs)], reached, [0]], axis=0)
    return tf.cast(reached[:-1] - reached[1:], tf.float32)
