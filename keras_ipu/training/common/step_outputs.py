"""Turns the outputs of steps into what Keras takes: reduces the logs of replicas, joins predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import tensorflow as tf

from keras_ipu.options.options import ReplicatedMetricReductionMethod as Method


@dataclasses.dataclass(frozen=True)
class ArrayFunctions:
    """Functions on the arrays that a back end's steps return. Reductions are over the first dimension.

    Attributes:
        map_structure: calls a function for each array of a structure.
        unstack: the values along the first dimension, as a list.
        reduce_sum: their sum.
        reduce_mean: their mean; of integers as float32.
        reshape: the array in another shape.
        concatenate: several arrays as one, along their first dimension.
        stack: several arrays as one, along a new first dimension.
    """

    map_structure: Callable[..., Any]
    unstack: Callable[[Any], list[Any]]
    reduce_sum: Callable[[Any], Any]
    reduce_mean: Callable[[Any], Any]
    reshape: Callable[[Any, Sequence[int]], Any]
    concatenate: Callable[..., Any]
    stack: Callable[..., Any]


def _mean_of_tensors(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.cast(values, tf.float32) if values.dtype.is_integer else values, 0)


def _mean_of_arrays(values: np.ndarray) -> Any:
    return values.astype(np.float32).mean(0) if np.issubdtype(values.dtype, np.integer) else values.mean(0)


TENSORS = ArrayFunctions(
    tf.nest.map_structure,
    lambda values: list(tf.unstack(values)),
    lambda values: tf.reduce_sum(values, 0),
    _mean_of_tensors,
    tf.reshape,
    lambda *arrays: tf.concat(arrays, 0),
    lambda *arrays: tf.stack(arrays),
)
"""On TensorFlow's tensors."""

ARRAYS = ArrayFunctions(
    jax.tree.map,
    list,
    lambda values: values.sum(0),
    _mean_of_arrays,
    np.reshape,
    lambda *arrays: np.concatenate(arrays),
    lambda *arrays: np.stack(arrays),
)
"""On NumPy's arrays."""


def reduce_replica_logs(outputs: Any, replicas: int, method: Method, arrays: ArrayFunctions, averaged: int = 1) -> Any:
    """Reduces the logs of replicas to the logs of an execution.

    Args:
        outputs: a structure of arrays: of the last step, or of all steps with a leading dimension where some are
            averaged; with several replicas each has a dimension of replicas.
        replicas: how many there are.
        method: how the values of replicas are combined.
        arrays: functions on the arrays.
        averaged: over how many of the last steps; 1 for the last step alone.

    Returns:
        The same structure; with `LIST` and several replicas a list of a value for each replica in place of an array.

    Example:
        >>> reduce_replica_logs({"loss": np.float32([1.0, 3.0])}, 2, Method.MEAN, ARRAYS)["loss"].item()
        2.0
    """
    if averaged > 1:
        outputs = arrays.map_structure(lambda values: arrays.reduce_mean(values[-averaged:]), outputs)
    if replicas == 1:
        return outputs
    combine = {Method.LIST: arrays.unstack, Method.SUM: arrays.reduce_sum, Method.MEAN: arrays.reduce_mean}
    return arrays.map_structure(combine.get(method, lambda values: values[-1]), outputs)


def join_predictions(outputs: Any, leading: int, arrays: ArrayFunctions) -> Any:
    """Joins the predictions of steps and replicas to one dimension of samples; scalars become one value a step.

    Args:
        outputs: a structure of arrays `[(steps,) (replicas,) batch, ...]`.
        leading: how many of the dimensions of steps and replicas there are.
        arrays: functions on the arrays.

    Example:
        >>> join_predictions(np.zeros((4, 2, 8, 10)), 2, ARRAYS).shape
        (64, 10)
    """

    def joined(values: Any) -> Any:
        shape = tuple(values.shape)
        return values if shape and leading == 0 else arrays.reshape(values, (-1, *shape[leading + 1 :]))

    return arrays.map_structure(joined, outputs)
