"""`CrossReplicaOptimizer`: averages gradients over replicas."""

from __future__ import annotations

from typing import Any

import keras

from keras_ipu.optimizers.gradient_reduction import dense
from keras_ipu.optimizers.ipu_optimizer import CapturedGrads, IpuOptimizer


@keras.saving.register_keras_serializable(package="keras_ipu")
class CrossReplicaOptimizer(IpuOptimizer):
    """Applies the mean of each gradient over all replicas. With one replica that is the gradient.

    Replicas are there under an `IPUStrategy` and in TensorFlow 1 graphs; anywhere else there is one.

    Args:
        opt: the Keras optimizer to wrap.
        name: of this optimizer.
    """

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def update(self, grads: list[Any], variables: list[Any], captured_grads: CapturedGrads = None) -> None:
        """Passes the mean of the gradients over replicas to the wrapped optimizer."""
        super().update(_means(grads) if _may_be_replicated() else grads, variables, captured_grads)


def _means(grads: list[Any]) -> list[Any]:
    from ipu_tf.ops import cross_replica_ops

    return [None if grad is None else cross_replica_ops.cross_replica_mean(dense(grad)) for grad in grads]


def sum_over_replicas(value: Any) -> Any:
    """Returns the sum of a value over all replicas, in a step that runs on them; elsewhere the value."""
    if keras.backend.backend() == "jax":
        from ipu_tf._loops import jax_step

        return jax_step.sum_over_replicas(value)
    if not _may_be_replicated():
        return value
    from ipu_tf.ops import cross_replica_ops

    return cross_replica_ops.cross_replica_sum(value)


def _may_be_replicated() -> bool:
    """Returns whether this step may run on several replicas: under an `IPUStrategy`, or in a TensorFlow 1 graph."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    from ipu_tf import ipu_strategy

    if isinstance(tf.distribute.get_strategy(), ipu_strategy.IPUStrategyV1):
        return not tf.executing_eagerly()
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function
