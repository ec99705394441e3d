"""Reads and writes the shard attribute of TensorFlow ops (the IPU of a device), which lowering ignores.

The emulated device computes on one place whatever the shards are; how many a program uses decides how many replicas
of it fit on a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.tensorflow import tf_graphs

SHARD_ATTRIBUTE = "_ipu_shard"


def shard_value(shards: Iterable[int]) -> Any:
    """Converts shards to the value of an op's attribute."""
    return tf.compat.v1.AttrValue(list=tf.compat.v1.AttrValue.ListValue(i=list(shards)))


def parse_shards(value: Any) -> list[int]:
    """Parses the shards of an attribute's value."""
    return list(value.list.i)


def shards_of(operation: tf.Operation) -> list[int] | None:
    """Returns the shards of an op; None if none was set."""
    attributes = operation.node_def.attr
    return parse_shards(attributes[SHARD_ATTRIBUTE]) if SHARD_ATTRIBUTE in attributes else None


def set_shard_attribute(operation: tf.Operation, shards: Iterable[int]) -> None:
    """Sets the shards of an op."""
    tf_graphs.set_attribute(operation, SHARD_ATTRIBUTE, shard_value(shards))


def shard_count_of(graph: tf.Graph) -> int:
    """Counts the IPUs of a traced program: its highest shard plus one; 1 without shards.

    Args:
        graph: the program's graph; the functions that it calls, loops and branches count.
    """
    return 1 + max((shard for shards in _all_shards(graph.as_graph_def()) for shard in shards), default=0)


def _all_shards(graph_def: Any) -> Iterator[list[int]]:
    nodes = [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]
    return (parse_shards(node.attr[SHARD_ATTRIBUTE]) for node in nodes if SHARD_ATTRIBUTE in node.attr)
