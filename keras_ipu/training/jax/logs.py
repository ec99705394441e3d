"""Logs and predictions on Keras's JAX back end, reduced and joined as NumPy arrays."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from keras_ipu.options.options import ReplicatedMetricReductionMethod as Method


def reduce_logs(rows: Any, replicas: int, method: Method, averaged: int = 1) -> Any:
    """Reduces the logs of an execution as `replicated_logs.reduce_replica_logs` does, for NumPy arrays.

    Args:
        rows: a tree of arrays: of the last step, or of all steps with a leading dimension where some are averaged; with
            several replicas each has a dimension of replicas.
        replicas: how many there are.
        method: how the values of replicas are combined.
        averaged: over how many of the last steps; 1 for the last step alone.

    Example:
        >>> reduce_logs({"loss": np.float32([1.0, 3.0])}, 2, Method.MEAN)["loss"].item()
        2.0
    """
    if averaged > 1:
        rows = jax.tree.map(lambda row: _mean(row[-averaged:]), rows)
    return rows if replicas == 1 else jax.tree.map(lambda row: _combined(row, method), rows)


def concatenate_predictions(rows: Any, replicas: int) -> Any:
    """Joins `[steps, (replicas,) batch, ...]` to one dimension of samples; scalars become one value a step."""
    lead = 1 if replicas == 1 else 2
    return jax.tree.map(lambda array: array.reshape(-1, *array.shape[lead + 1 :]), rows)


def _combined(row: np.ndarray, method: Method) -> Any:
    if method is Method.LIST:
        return list(row)
    if method is Method.SUM:
        return row.sum(0)
    return _mean(row) if method is Method.MEAN else row[-1]


def _mean(row: np.ndarray) -> Any:
    return row.astype(np.float32).mean(0) if np.issubdtype(row.dtype, np.integer) else row.mean(0)
