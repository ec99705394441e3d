"""`tf.contrib.layers`: its initializers and regularizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = [
    "l1_regularizer",
    "l2_regularizer",
    "variance_scaling_initializer",
    "xavier_initializer",
    "xavier_initializer_conv2d",
]


_LEFT_OF_DEVIATION = 0.87962566103423978
"""What TensorFlow divides the standard deviation of a truncated normal distribution by."""


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = tf.float32) -> Any:
    """Glorot's initializer: uniform, or a truncated normal distribution."""
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


xavier_initializer_conv2d = xavier_initializer


def variance_scaling_initializer(
    factor: float = 2.0, mode: str = "FAN_IN", uniform: bool = False, seed: int | None = None, dtype: Any = tf.float32
) -> Any:
    """The initializer whose variance is `factor` over the number of inputs, outputs or their mean.

    Raises:
        TypeError: for a mode other than FAN_IN, FAN_OUT and FAN_AVG.
    """
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise TypeError(f"Unknown mode {mode} [FAN_IN, FAN_OUT, FAN_AVG]")
    kind = "uniform" if uniform else "truncated_normal"
    # tf.contrib rounds what a distribution loses that is cut at two deviations, where TensorFlow divides by it.
    scale = factor if uniform else 1.3 * factor * _LEFT_OF_DEVIATION**2
    return tf.compat.v1.variance_scaling_initializer(scale, mode.lower(), kind, seed=seed, dtype=dtype)


def l1_regularizer(scale: float, scope: str | None = None) -> Callable[[Any], Any]:
    """`scale` times the sum of absolute values."""
    return lambda weights: tf.multiply(tf.cast(scale, weights.dtype), tf.reduce_sum(tf.abs(weights)), name=scope)


def l2_regularizer(scale: float, scope: str | None = None) -> Callable[[Any], Any]:
    """`scale` times half the sum of squares."""
    return lambda weights: tf.multiply(tf.cast(scale, weights.dtype), tf.nn.l2_loss(weights), name=scope)
