"""Raw ops of tables on the host, as `ipu.embedding_ops.HostEmbedding` uses them: see there."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.device import host_tables
from ipu_tf.device.errors import DeviceError
from ipu_tf.lowering.host_calls import apply_marker, lookup_marker, update_marker
from ipu_tf.lowering.host_errors import as_promised
from ipu_tf.lowering.host_op import host_op


def ipu_host_embedding_register(
    weights: tf.Variable, embedding_id: str, optimizer: str = "SGD", name: str | None = None
) -> tf.Operation:
    """Makes a copy of a variable known as a table on the host.

    Args:
        weights: the variable.
        embedding_id: the table's name.
        optimizer: `SGD`, or `SGD+GA` for a table whose updates wait for `ipu_device_embedding_notify`.
        name: for the op.

    Returns:
        The op that does so, in a graph.
    """
    updates_at_once = None if optimizer == "SGD+GA" else 1

    def start(rows: np.ndarray) -> None:
        try:
            host_tables.register(embedding_id, host_tables.HostTable(np.array(rows), updates_at_once))
        except DeviceError as error:
            raise as_promised(error) from None

    return host_op(start, [tf.convert_to_tensor(weights)], [], name or "host_embedding_register").operation


def ipu_host_embedding_deregister(weights: tf.Variable, embedding_id: str, name: str | None = None) -> tf.Tensor:
    """Forgets a table on the host and gives its variable the table's values.

    Args:
        weights: the variable.
        embedding_id: the table's name.
        name: for the op.

    Returns:
        The values.
    """

    def stop() -> list[np.ndarray]:
        try:
            return [host_tables.deregister(embedding_id).rows]
        except DeviceError as error:
            raise as_promised(error) from None

    spec = tf.TensorSpec(weights.shape, weights.dtype.base_dtype)
    [rows] = host_op(stop, [], [spec], name or "host_embedding_deregister").results
    with tf.control_dependencies([tf.compat.v1.assign(weights, rows)]):
        return tf.identity(rows)


def ipu_device_embedding_lookup(
    indices: tf.Tensor,
    embedding_id: str,
    embedding_shape: Any,
    dtype: Any,
    partition_strategy: str = "TOKEN",
    name: str | None = None,
) -> tf.Tensor:
    """The rows of a table on the host at some indices, inside a program.

    Args:
        indices: int32, of rank 1.
        embedding_id: the table's name.
        embedding_shape: its shape, `[tokens, encoding]`.
        dtype: its dtype.
        partition_strategy: without effect in emulation.
        name: scope of the op's name.
    """
    spec = tf.TensorSpec([*indices.shape, *list(embedding_shape)[1:]], dtype)
    with tf.name_scope(name or "device_embedding_lookup"):
        return lookup_marker(embedding_id, indices, spec)


def ipu_device_embedding_update_add(
    activations: tf.Tensor,
    updates: tf.Tensor,
    indices: tf.Tensor,
    embedding_id: str,
    embedding_shape: Any,
    partition_strategy: str = "TOKEN",
    name: str | None = None,
) -> tf.Operation:
    """Adds to the rows of a table on the host, inside a program.

    Args:
        activations: what was looked up before; only orders the two.
        updates: what to add, one row for each index.
        indices: int32, of rank 1.
        embedding_id: the table's name.
        embedding_shape: its shape.
        partition_strategy: without effect in emulation.
        name: scope of the op's name.
    """
    with tf.name_scope(name or "device_embedding_update_add"), tf.control_dependencies([activations]):
        return update_marker(embedding_id, indices, updates)


def ipu_device_embedding_notify(embedding_id: str, name: str | None = None) -> tf.Operation:
    """Applies the updates of an `SGD+GA` table on the host that wait, inside a program.

    Args:
        embedding_id: the table's name.
        name: scope of the op's name.
    """
    with tf.name_scope(name or "device_embedding_notify"):
        return apply_marker(embedding_id)
