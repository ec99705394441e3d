"""Ops that XLA computes otherwise than TensorFlow's CPU kernels, rebuilt to give the numbers of those.

Means of integers whose sum has more bits than they have, targets that are no class, NaN that is searched for,
zeros of both signs, gradients of roots of complex numbers, which XLA does not conjugate, and of SELU at 0, where XLA's
slope is that of negative numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_SELU_SCALE = 1.0507009873554804934
_SELU_SCALE_ALPHA = 1.7580993408473768599


def mean(input: Any, axis: Any, keep_dims: bool = False, name: str | None = None) -> tf.Tensor:
    """Computes means as `tf.raw_ops.Mean` does, those of integers from sums of 64 bits; the arguments are its."""
    input = tf.convert_to_tensor(input)
    if not input.dtype.is_integer or input.dtype.size > 4:
        return tf.raw_ops.Mean(input=input, axis=axis, keep_dims=keep_dims, name=name)
    total = tf.raw_ops.Sum(input=tf.cast(input, tf.int64), axis=axis, keep_dims=keep_dims)
    terms = tf.size(input, tf.int64) // tf.maximum(tf.size(total, tf.int64), 1)
    return tf.cast(tf.truncatediv(total, tf.maximum(terms, 1)), input.dtype, name or "Mean")


def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> tf.Tensor:
    """Says which targets are among the greatest as `tf.raw_ops.InTopKV2` does; the arguments are its.

    A target that is no class is not, and none is in a row where a number is infinite or NaN.
    """
    predictions, targets = tf.convert_to_tensor(predictions), tf.convert_to_tensor(targets)
    found = tf.raw_ops.InTopKV2(predictions=predictions, targets=targets, k=k)
    is_class = (targets >= 0) & (targets < tf.shape(predictions, targets.dtype)[1])
    are_numbers = tf.reduce_all(tf.math.is_finite(predictions), 1)
    return tf.logical_and(found, is_class & are_numbers, name or "InTopKV2")


def upper_bound(sorted_inputs: Any, values: Any, out_type: Any = tf.int32, name: str | None = None) -> tf.Tensor:
    """Counts what is not above each value as `tf.raw_ops.UpperBound` does; the arguments are its. None is above NaN."""
    sorted_inputs, values = tf.convert_to_tensor(sorted_inputs), tf.convert_to_tensor(values)
    found = tf.raw_ops.UpperBound(sorted_inputs=sorted_inputs, values=values, out_type=out_type, name=name)
    if not values.dtype.is_floating:
        return found
    return tf.where(tf.math.is_nan(values), tf.shape(sorted_inputs, out_type)[1], found)


def bucketize(input: Any, boundaries: Sequence[float], name: str | None = None) -> tf.Tensor:
    """Counts boundaries that are not above each number as `tf.raw_ops.Bucketize` does; the arguments are its."""
    input = tf.convert_to_tensor(input)
    wide = tf.float64 if input.dtype == tf.float64 else tf.float32
    below = tf.cast(input, wide)[..., tf.newaxis] < tf.cast(tf.constant(boundaries, tf.float32), wide)
    return tf.reduce_sum(tf.cast(tf.logical_not(below), tf.int32), -1, name=name or "Bucketize")


def top_k(input: Any, k: Any, sorted: bool = True, index_type: Any = tf.int32, name: str | None = None) -> Any:
    """Finds the greatest numbers as `tf.raw_ops.TopKV2` does; the arguments are its.

    XLA sorts bfloat16 by its bits, -0 before +0. Other floats are mended where sorts are lowered.
    """
    input = tf.convert_to_tensor(input)
    short = input.dtype == tf.bfloat16
    given = tf.cast(input, tf.float32) if short else input
    found = tf.raw_ops.TopKV2(input=given, k=k, sorted=sorted, index_type=index_type, name=name)
    return found._replace(values=tf.cast(found.values, input.dtype)) if short else found


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
    "Bucketize": bucketize,
    "in_top_kv2": in_top_k,
    "mean": mean,
    "reciprocal_grad": reciprocal_grad,
    "rsqrt_grad": rsqrt_grad,
    "selu_grad": selu_grad,
    "sqrt_grad": sqrt_grad,
    "top_kv2": top_k,
    "upper_bound": upper_bound,
}
"""By the names of TensorFlow's functions."""
