"""Embedding lookup in tables on the device, and `HostEmbedding` tables that stay on the host."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf._arguments.counts import checked_integer
from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._ops.host_embedding import (
    HostEmbedding,
    HostEmbeddingOptimizerSpec,
    HostEmbeddingSGDGAOptimizerSpec,
    create_host_embedding,
)

__all__ = [
    "HostEmbedding",
    "HostEmbeddingOptimizerSpec",
    "HostEmbeddingSGDGAOptimizerSpec",
    "create_host_embedding",
    "embedding_lookup",
    "rows_added",
]


def embedding_lookup(
    params: Any, ids: Any, serialization_factor: int = 1, indices_are_sorted: bool = False, name: str | None = None
) -> tf.Tensor:
    """The rows of a table at some indices. The gradient of the table is dense.

    Args:
        params: the table, of shape `[rows, ...]`.
        ids: int32 indices of rows, of any shape. One out of range gives the nearest row.
        serialization_factor: how many lookups an IPU would make of it to save memory; has to divide the number of
            rows, and changes no value.
        indices_are_sorted: without effect in emulation.
        name: scope of the ops' names; `embedding_lookup` by default.

    Returns:
        A tensor of shape `ids.shape + params.shape[1:]`.

    Raises:
        ValueError: if `serialization_factor` is below 1 or does not divide the number of rows.

    Example:
        >>> import tensorflow as tf
        >>> from ipu_tf.ops.embedding_ops import embedding_lookup
        >>> embedding_lookup(tf.constant([[1.0], [2.0], [3.0]]), tf.constant([2, 0])).numpy().tolist()
        [[3.0], [1.0]]
    """
    factor = checked_integer("serialization_factor", serialization_factor)
    if factor < 1:
        raise ValueError(f"serialization_factor has to be at least 1, but was {factor}.")
    record_ignored("embedding_lookup.indices_are_sorted", indices_are_sorted or None)
    with tf.name_scope(name or "embedding_lookup"):
        table, indices = tf.convert_to_tensor(params), tf.convert_to_tensor(ids)
        rows = int(table.shape[0])
        if rows % factor:
            raise ValueError(
                f"The serialization_factor ({factor}) must divide the size of the 0th dimension of params ({rows})."
            )
        return _gathered(table, tf.clip_by_value(indices, 0, rows - 1))


def rows_added(table: Any, indices: Any, updates: Any, scale: Any = 1) -> tf.Tensor:
    """A table with something added to some of its rows: `table[indices[i]] += scale * updates[i]` for each i.

    Args:
        table: the table, of shape `[rows, ...]`.
        indices: int32 indices of rows, of rank 1. One out of range means the nearest row.
        updates: one row for each index.
        scale: a number.
    """
    table, indices = tf.convert_to_tensor(table), tf.convert_to_tensor(indices)
    indices = tf.clip_by_value(indices, 0, int(table.shape[0]) - 1)
    return table + tf.cast(scale, table.dtype) * tf.math.unsorted_segment_sum(updates, indices, table.shape[0])


@tf.custom_gradient
def _gathered(table: tf.Tensor, indices: tf.Tensor) -> Any:
    def gradient(upstream: tf.Tensor) -> Any:
        # Not -1: rows may have no elements. The shape may be open until the program is lowered.
        flat = tf.reshape(upstream, [tf.size(indices), *table.shape[1:]])
        return tf.math.unsorted_segment_sum(flat, tf.reshape(indices, [-1]), table.shape[0]), None

    return tf.gather(table, indices), gradient
