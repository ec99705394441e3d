"""Reads and writes the values of TensorFlow variables that live on the device, of every replica."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ipu_tf.device.memory.residency import RESIDENCY
from ipu_tf.lowering.tensorflow.variables import host_variable

Values = tuple[np.ndarray, np.ndarray | None]
"""A variable's value, and that of each replica, `[replicas, ...]`, where they differ."""


def read_values(variables: Sequence[tf.Variable]) -> list[Values]:
    """Returns copies of the newest values of variables.

    Args:
        variables: on the host; their values may be on the device.
    """
    known = [host_variable(variable) for variable in variables]
    RESIDENCY.flush(known)
    host = [np.array(view) for view, _ in type(known[0]).snapshots(known)] if known else []
    return [(value, RESIDENCY.replica_values(one)) for value, one in zip(host, known, strict=True)]


def write_values(variables: Sequence[tf.Variable], values: Sequence[Values]) -> None:
    """Assigns values to variables; the replicas of the next program begin with those of their own.

    Args:
        variables: as for `read_values`.
        values: what it returned.
    """
    known = [host_variable(variable) for variable in variables]
    RESIDENCY.flush(known)
    RESIDENCY.forget(known)
    type(known[0]).write_all(known, [value for value, _ in values])
    for one, (_, of_replicas) in zip(known, values, strict=True):
        if of_replicas is not None:
            RESIDENCY.prepare(one, of_replicas)
