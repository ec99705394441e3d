"""Calls a user's `model_fn` inside a loop, and checks the ops that it built."""

from __future__ import annotations

import copy
from typing import Any

import tensorflow as tf

from ipu_tf._estimators.model import EstimatorModel
from ipu_tf._estimators.spec import IPUEstimatorSpec
from ipu_tf.lowering.tensorflow import tf_graphs
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
