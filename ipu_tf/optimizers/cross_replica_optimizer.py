"""`CrossReplicaOptimizer`: averages gradients over replicas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ipu_tf.ops.cross_replica_ops import cross_replica_mean
from ipu_tf.optimizers.ipu_optimizer import IpuOptimizer

__all__ = ["CrossReplicaOptimizer"]


class CrossReplicaOptimizer(IpuOptimizer):
    """Applies the mean of every replica's gradients.

    Args:
        opt: the wrapped `tf.compat.v1.train.Optimizer`.
        name: of this one.
    """

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> tf.Operation:
        """Applies the mean over replicas of each gradient; a None is passed on."""
        averaged = [(None if g is None else cross_replica_mean(tf.convert_to_tensor(g)), v) for g, v in grads_and_vars]
        return super().apply_gradients(averaged, global_step, name)
