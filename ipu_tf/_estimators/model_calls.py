"""Calls a user's `model_fn` inside a loop, checks the ops that it built, and computes its metrics after their updates.

total, count ──► value            as the model made it, before or after the updates
    │
update ──► read again ──► the same operations on what was read
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._estimators.model import EstimatorModel
from ipu_tf._estimators.spec import IPUEstimatorSpec
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private
from ipu_tf.lowering.tensorflow.graph_pruning import part_of
from ipu_tf.tf_estimator.calls import call_model_fn
from ipu_tf.tf_estimator.input_data import features_and_labels
from ipu_tf.tf_estimator.model_fn import EstimatorSpec

tf1 = tf.compat.v1
_ADDITIONS = ("AssignAddVariableOp", "AssignVariableOp", "AssignSubVariableOp")
_REDUCTIONS = (b"ipu.all_reduce", b"ipu.reduce_scatter")


def call_on_element(model: EstimatorModel, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Calls the `model_fn` on one element of the infeed, the arguments of a loop's body; returns its spec.

    Raises:
        ValueError: if the element is no pair of features and labels, or the result no spec.
    """
    features, labels = features_and_labels(named or (args[0] if len(args) == 1 else args), model.mode)
    params = copy.deepcopy(model.params)  # a loop's body may be traced more than once
    spec = call_model_fn(model.model_fn, features, labels, model.mode, params, model.config)
    if not isinstance(spec, (IPUEstimatorSpec, EstimatorSpec)):
        raise ValueError("`model_fn` must return IPUEstimatorSpec or EstimatorSpec")
    return spec


def needed(spec: Any, name: str, doing: str) -> Any:
    """Checks that a spec has a field, and returns it.

    Raises:
        ValueError: if it does not.
    """
    value = getattr(spec, name)
    if value is None:
        raise ValueError(f"EstimatorSpec must contain {name} when {doing}")
    return value


def check_global_step_untouched() -> None:
    """Checks that the graph being built does not change the global step.

    Raises:
        ValueError: if it does.
    """
    step = tf1.train.get_global_step()
    for operation in tf1.get_default_graph().get_operations():
        if operation.type in _ADDITIONS and tf_graphs.captured_from(operation.inputs[0]) is step.handle:
            raise ValueError(
                "Illegal increment of the `global_step` variable in the `model_fn`. This is usually caused by passing "
                "it as an argument to the `Optimizer.minimize()` function. Please remove this argument as the "
                "IPUEstimator itself is responsible for incrementing it."
            )


def check_replicas_agree() -> None:
    """Checks that the graph being built reduces something across replicas.

    Raises:
        ValueError: if it does not.
    """
    definition = tf1.get_default_graph().as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    targets = {node.attr["call_target_name"].s for node in nodes if "call_target_name" in node.attr}
    if targets.isdisjoint(_REDUCTIONS):
        raise ValueError(
            "This is not a valid replicated training graph because no IpuCrossReplicaSum or IpuCrossReplicaMean "
            "operations were found. Did you remember to use the "
            "`tensorflow.python.ipu.optimizers.CrossReplicaOptimizer`?"
        )


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
