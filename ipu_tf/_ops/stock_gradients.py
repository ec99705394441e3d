"""Gradients that XLA computes otherwise than TensorFlow's CPU kernels, rebuilt to give the numbers of those.

XLA's gradients of roots and reciprocals lack the conjugate of complex numbers, and its SELU has the slope of negative
numbers at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_SELU_SCALE = 1.0507009873554804934
_SELU_SCALE_ALPHA = 1.7580993408473768599


def reciprocal_grad(y: Any, dy: Any, name: str | None = None) -> tf.Tensor:
    """Computes the gradient of 1 / x as `tf.raw_ops.ReciprocalGrad` does; the arguments are its."""
    y = tf.convert_to_tensor(y)
    if not y.dtype.is_complex:
        return tf.raw_ops.ReciprocalGrad(y=y, dy=dy, name=name)
    return tf.multiply(-dy, tf.square(tf.math.conj(y)), name or "ReciprocalGrad")


def rsqrt_grad(y: Any, dy: Any, name: str | None = None) -> tf.Tensor:
    """Computes the gradient of a root's reciprocal as `tf.raw_ops.RsqrtGrad` does; the arguments are its."""
    y = tf.convert_to_tensor(y)
    if not y.dtype.is_complex:
        return tf.raw_ops.RsqrtGrad(y=y, dy=dy, name=name)
    conjugate = tf.math.conj(y)
    return tf.multiply(-0.5 * dy, conjugate * tf.square(conjugate), name or "RsqrtGrad")


def selu_grad(gradients: Any, outputs: Any, name: str | None = None) -> tf.Tensor:
    """Computes the gradient of SELU as `tf.raw_ops.SeluGrad` does, from its outputs; the arguments are its."""
    outputs = tf.convert_to_tensor(outputs)
    negative = gradients * (outputs + _SELU_SCALE_ALPHA)
    return tf.where(outputs < 0, negative, gradients * _SELU_SCALE, name or "SeluGrad")


def sqrt_grad(y: Any, dy: Any, name: str | None = None) -> tf.Tensor:
    """Computes the gradient of a root as `tf.raw_ops.SqrtGrad` does; the arguments are its."""
    y = tf.convert_to_tensor(y)
    if not y.dtype.is_complex:
        return tf.raw_ops.SqrtGrad(y=y, dy=dy, name=name)
    return tf.divide(0.5 * dy, tf.math.conj(y), name or "SqrtGrad")


OPS: dict[str, Callable[..., Any]] = {
    "reciprocal_grad": reciprocal_grad,
    "rsqrt_grad": rsqrt_grad,
    "selu_grad": selu_grad,
    "sqrt_grad": sqrt_grad,
}
"""By the names of TensorFlow's functions."""
