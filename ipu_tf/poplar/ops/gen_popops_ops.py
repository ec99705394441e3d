"""Raw ops for collectives and slices, under the names of Graphcore's plugin."""

from __future__ import annotations

import importlib
from typing import Any

from ipu_tf.poplar.refusal import refuse_others


def ipu_cross_replica_sum(input: Any, replica_group_size: int | None = None, name: str | None = None) -> Any:  # noqa: A002
    """`ipu.cross_replica_ops.cross_replica_sum`."""
    return _op("cross_replica_ops").cross_replica_sum(input, replica_group_size, name)


def ipu_cross_replica_mean(input: Any, replica_group_size: int | None = None, name: str | None = None) -> Any:  # noqa: A002
    """`ipu.cross_replica_ops.cross_replica_mean`."""
    return _op("cross_replica_ops").cross_replica_mean(input, replica_group_size, name)


def ipu_all_gather(inputs: list[Any], replication_factor: int, name: str | None = None) -> list[Any]:
    """`ipu.all_to_all_op.all_gather` of a list of tensors."""
    return list(_op("all_to_all_op").all_gather(list(inputs), replication_factor, name))


def ipu_all_to_all(
    input: Any,  # noqa: A002 - the raw op's name
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    name: str | None = None,
) -> Any:
    """`ipu.all_to_all_op.all_to_all`."""
    return _op("all_to_all_op").all_to_all(input, split_dimension, concat_dimension, split_count, name)


def ipu_multi_slice(input: Any, indices: Any, indices_are_sorted: bool = False, name: str | None = None) -> Any:  # noqa: A002
    """`ipu.embedding_ops.embedding_lookup`."""
    return _op("embedding_ops").embedding_lookup(input, indices, 1, indices_are_sorted, name)


def ipu_multi_update_add(
    input: Any,  # noqa: A002 - the raw op's name
    indices: Any,
    updates: Any,
    scale: Any,
    indices_are_sorted: bool = False,
    name: str | None = None,
) -> Any:
    """A table with `scale * updates` added to its rows at some indices."""
    return _op("embedding_ops").rows_added(input, indices, updates, scale)


def _op(module: str) -> Any:
    # Only when it is called: programs import this module for other names too.
    return importlib.import_module(f"ipu_tf.ops.{module}")


__getattr__ = refuse_others(
    __name__,
    "this raw op of Graphcore's plugin is not emulated. It concerns collectives, slices and embeddings. Use "
    "ipu.cross_replica_ops, ipu.slicing_ops, ipu.embedding_ops or tf.gather.",
)
