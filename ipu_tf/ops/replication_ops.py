"""`replication_index`: the index of the running replica."""

from __future__ import annotations

import tensorflow as tf

from ipu_tf.lowering.tensorflow.markers import marker

__all__ = ["replication_index"]


def replication_index(name: str | None = None) -> tf.Tensor:
    """The number of the replica that computes it, `int32[]`: 0 to the number of replicas less one."""
    with tf.name_scope(name or "replication_index"):
        [index] = marker("ipu.replica_index", [], [tf.TensorSpec([], tf.int32)])
    return index
