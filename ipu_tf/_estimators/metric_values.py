"""Values of TF1 metrics after their updates, within one step of a loop on the device.

total, count ──► value            as the model made it, before or after the updates
    │
update ──► read again ──► the same operations on what was read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.tensorflow import tf_graphs, tf_private
from ipu_tf.lowering.tensorflow.graph_pruning import part_of


def values_after_updates(metrics: Mapping[str, tuple[tf.Tensor, Any]]) -> dict[str, tf.Tensor]:
    """Returns each metric's value as it is once all metrics are updated.

    A session would fetch values after it has run the updates. An update's own result is often the value, but not
    where the value is computed of several metrics, or the update gives what it counts.

    Args:
        metrics: value and update, a tensor or an operation, by name.
    """
    with tf.control_dependencies([update for _, update in metrics.values()]):
        return {name: _computed_again(value) for name, (value, _) in sorted(metrics.items())}


def _computed_again(value: tf.Tensor) -> tf.Tensor:
    """Copies the operations that compute a tensor from variables, after what the current scope depends on."""
    again = _after_reads(tf_graphs.in_order(value.op))
    if value.op not in again:
        return tf.identity(value)
    nodes = part_of(value.graph.as_graph_def(), {operation.name for operation in again}, alone=True)
    nodes.library.Clear()  # the graph that they go back to has the functions
    outside = {each.name: each for operation in again for each in operation.inputs if each.op not in again}
    [result] = tf.graph_util.import_graph_def(nodes, outside, [value.name], name="metric_value")
    return result


def _after_reads(operations: Sequence[tf.Operation]) -> set[tf.Operation]:
    """Returns reads of variables, and what is computed of them; not what is computed of an update's result alone."""
    found: set[tf.Operation] = set()
    for operation in operations:
        handles = [each for each in operation.inputs if each.dtype == tf.resource]
        writes = any(tf_private.may_write(operation, handle) for handle in handles)
        if not writes and (handles or any(each.op in found for each in operation.inputs)):
            found.add(operation)
    return found
