"""`ShardedOptimizer`: places gradients and updates on the shards of their variables."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf.optimizers.ipu_optimizer import IpuOptimizer
from ipu_tf.sharding import propagate_sharding


class ShardedOptimizer(IpuOptimizer):
    """Puts gradients on the shards of their forward ops, and updates on those of their variables.

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`.
    """

    def __init__(self, optimizer: tf.compat.v1.train.Optimizer) -> None:
        super().__init__(optimizer, "ShardedOptimizer")

    def compute_gradients(self, loss: tf.Tensor, var_list: Any = None, **kwargs: Any) -> list[Any]:
        """The gradients that the wrapped optimizer computes; arguments as `IpuOptimizer.compute_gradients`."""
        computed = super().compute_gradients(loss, var_list, **{**kwargs, "colocate_gradients_with_ops": True})
        propagate_sharding(tf.compat.v1.get_default_graph())
        return computed

    def apply_gradients(
        self, grads_and_vars: Any, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies gradients with the wrapped optimizer; arguments as `IpuOptimizer.apply_gradients`."""
        applied = super().apply_gradients(grads_and_vars, global_step, name)
        propagate_sharding(tf.compat.v1.get_default_graph())
        return applied
