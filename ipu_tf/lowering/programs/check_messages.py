"""Builds messages of failed assertions, by running TensorFlow's own op on the recorded values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import tensorflow as tf

from ipu_tf.device.numerics.assertions import AssertionFailed
from ipu_tf.lowering.stablehlo.check_markers import GROWS, LIST_ITEMS, RANDOM_INTEGERS
from ipu_tf.lowering.tensorflow import tf_values

_GROWS = (
    "Trying to write element {} of a TensorArray of {} elements. The device needs fixed shapes, so that an array made "
    "with dynamic_size=True does not grow: give it its size, tf.TensorArray(dtype, size=...)."
)


def check_message(error: AssertionFailed) -> str:
    """Returns the message of the `tf.errors.InvalidArgumentError`: TensorFlow's own, with the number of the step."""
    said = _MESSAGES[error.check.kind](error)
    where = f"`{error.check.origin}`{error.where}"
    return f"{said}\nIt failed in {where}. Variables keep the values they had before the run."


def _asserted(error: AssertionFailed) -> str:
    tensors = iter(zip(error.check.tensors, error.values, strict=True))
    data = [_filled(*next(tensors)) if text is None else tf.constant(text) for text in error.check.pieces]
    return _tensorflow_message(tf.raw_ops.Assert, condition=False, data=data, summarize=error.check.summarize)


def _not_finite(error: AssertionFailed) -> str:
    ops = {"CheckNumerics": tf.raw_ops.CheckNumerics, "CheckNumericsV2": tf.raw_ops.CheckNumericsV2}
    shown = np.array([-np.inf, np.inf, np.nan], np.float32)[error.values[0]]
    return _tensorflow_message(ops[error.check.kind], tensor=shown, message=error.check.message)


def _list_index(error: AssertionFailed) -> str:
    index, length = _numbers(error)
    if error.check.message == GROWS:
        return _GROWS.format(index, length)
    scalars = {"element_shape": np.zeros(0, np.int32), "element_dtype": tf.float32}
    with tf_values.eager_mode():
        items = tf.raw_ops.TensorListReserve(num_elements=length, **scalars)
    if error.check.kind == "TensorListSetItem":
        return _tensorflow_message(tf.raw_ops.TensorListSetItem, input_handle=items, index=index, item=0.0)
    if error.check.kind == "TensorListGather":
        return _tensorflow_message(tf.raw_ops.TensorListGather, input_handle=items, indices=[index], **scalars)
    return _tensorflow_message(tf.raw_ops.TensorListGetItem, input_handle=items, index=index, **scalars)


def _sequence_length(error: AssertionFailed) -> str:
    place, length, size, axis = _numbers(error)
    batch_axis, lengths = int(axis == 0), np.zeros(place + 1, np.int32)
    shape = np.ones(max(axis, batch_axis) + 1, np.int32)
    lengths[place], shape[axis], shape[batch_axis] = length, size, place + 1
    arguments = {"input": np.zeros(shape, np.bool_), "seq_lengths": lengths, "seq_dim": axis, "batch_dim": batch_axis}
    return _tensorflow_message(tf.raw_ops.ReverseSequence, **arguments)


def _no_permutation(error: AssertionFailed) -> str:
    place, value, size = _numbers(error)
    order = np.arange(size, dtype=np.int32)
    order[0 if value == place else place] = value
    return _tensorflow_message(tf.raw_ops.InvertPermutation, x=order)


def _empty_range(error: AssertionFailed) -> str:
    least, limit = (value[0] for value in error.values)
    return _tensorflow_message(tf.raw_ops.RandomUniformInt, shape=[1], minval=least, maxval=limit)


def _numbers(error: AssertionFailed) -> list[int]:
    return [int(value[0]) for value in error.values]


def _filled(struct: jax.ShapeDtypeStruct, first: np.ndarray) -> np.ndarray:
    """Makes a tensor of an assertion's shape from its first elements, which alone are known."""
    whole = np.zeros(struct.shape, struct.dtype)
    whole.reshape(-1)[: len(first)] = first
    return whole


def _tensorflow_message(op: Callable[..., Any], **arguments: Any) -> str:
    """Runs a failing op and returns TensorFlow's message, without names of its internal functions and devices."""
    with tf_values.eager_mode():
        try:
            op(**arguments)
        except tf.errors.InvalidArgumentError as error:
            return re.sub(r"^\{\{function_node .*?\}\} | \[Op:\w+\].*$", "", error.message, flags=re.DOTALL)
    raise AssertionError(f"{op} did not fail with {arguments}")


_MESSAGES: dict[str, Callable[[AssertionFailed], str]] = {
    "Assert": _asserted,
    "CheckNumerics": _not_finite,
    "CheckNumericsV2": _not_finite,
    **dict.fromkeys(LIST_ITEMS, _list_index),
    "ReverseSequence": _sequence_length,
    "InvertPermutation": _no_permutation,
    **dict.fromkeys(RANDOM_INTEGERS, _empty_range),
}
