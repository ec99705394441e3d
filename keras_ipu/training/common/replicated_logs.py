"""Reduces the logs of replicas: none, list, sum, mean."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_ipu.options.options import ReplicatedMetricReductionMethod as Method


def reduce_replica_logs(rows: Any, replicas: int, method: Method, averaged: int = 1) -> Any:
    """Reduces the logs of replicas to the logs of an execution.

    Args:
        rows: a structure of tensors: of the last step, or of all steps with a leading dimension where some are
            averaged; with several replicas each has a dimension of replicas.
        replicas: how many there are.
        method: how the values of replicas are combined.
        averaged: over how many of the last steps; 1 for the last step alone.

    Returns:
        The same structure; with `LIST` and several replicas a list of a value for each replica in place of a tensor.
    """
    if averaged > 1:
        rows = tf.nest.map_structure(lambda row: _mean(row[-averaged:]), rows)
    if replicas == 1:
        return rows
    return tf.nest.map_structure(lambda row: _combined(row, method), rows)


def _combined(row: tf.Tensor, method: Method) -> Any:
    if method is Method.LIST:
        return list(tf.unstack(row))
    if method is Method.SUM:
        return tf.reduce_sum(row, 0)
    return _mean(row) if method is Method.MEAN else row[-1]


def _mean(row: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.cast(row, tf.float32) if row.dtype.is_integer else row, 0)
