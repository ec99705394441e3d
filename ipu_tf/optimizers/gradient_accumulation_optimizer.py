"""Gradient accumulation optimizers: accumulate the gradients of several micro-batches, then apply them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ipu_tf._arguments.counts import checked_integer
from ipu_tf._training.accumulation import accumulated, on_update
from ipu_tf.emulation import record_ignored
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.ops.op_util import get_accumulator_dtype
from ipu_tf.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipu_tf.optimizers.ipu_optimizer import IpuOptimizer
from ipu_tf.optimizers.sharded_optimizer import ShardedOptimizer

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "GradientAccumulationReductionMethod",
]

Reduction = GradientAccumulationReductionMethod

DType = Any
"""A `tf.DType`, a function from a variable to one or None, or None."""


class GradientAccumulationOptimizerV2(IpuOptimizer):
    """Accumulates gradients over `num_mini_batches` iterations of the training loop, then applies them once.

    Everything that the wrapped optimizer does when it applies gradients happens once an update: momentum, learning rate
    schedules, the increment of `global_step`. The number of iterations of the loop has to be a multiple of
    `num_mini_batches`; accumulators start from zero with each execution.

    Args:
        opt: the wrapped `tf.compat.v1.train.Optimizer`.
        num_mini_batches: micro-batches to an update; a number or an `int32[]` tensor.
        offload_weight_update_variables: without effect in emulation.
        replicated_optimizer_state_sharding: without effect in emulation.
        dtype: of the accumulators, and of the gradients that are applied: None for that of each variable, a dtype, or a
            function from a variable to a dtype or None.
        reduction_method: a `GradientAccumulationReductionMethod` or its name.
        name: of this optimizer.

    Raises:
        ValueError: for a number below 1, an unknown method, sharded state that is not offloaded.
    """

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int | tf.Tensor,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: DType = None,
        reduction_method: Any = Reduction.SUM,
        name: str = "GradientAccumulationOptimizerV2",
    ) -> None:
        super().__init__(opt, name)
        _check(num_mini_batches, offload_weight_update_variables, replicated_optimizer_state_sharding)
        record_ignored(f"{name}.offload_weight_update_variables", offload_weight_update_variables)
        record_ignored(f"{name}.replicated_optimizer_state_sharding", replicated_optimizer_state_sharding or None)
        self._num_mini_batches = num_mini_batches
        self._dtype = dtype
        self._reduction = Reduction.parse(reduction_method)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> tf.Operation:
        """Accumulates gradients; in the last of `num_mini_batches` iterations applies what was accumulated."""
        pairs = [(self._accumulated(gradient, variable), variable) for gradient, variable in grads_and_vars]
        tf_values.create_optimizer_variables(
            self._opt, [variable for gradient, variable in pairs if gradient is not None]
        )
        applied = super().apply_gradients
        return on_update(self._num_mini_batches, lambda: applied(pairs, global_step, name)).op

    def _accumulated(self, gradient: Any, variable: Any) -> tf.Tensor | None:
        if gradient is None:
            return None
        dtype = get_accumulator_dtype(variable, self._dtype)
        return accumulated(gradient, self._num_mini_batches, self._reduction, dtype, variable.name.partition(":")[0])


class CrossReplicaGradientAccumulationOptimizerV2(GradientAccumulationOptimizerV2):
    """Accumulates gradients as `GradientAccumulationOptimizerV2` does, and averages them over replicas once an update.

    Args:
        opt: the wrapped `tf.compat.v1.train.Optimizer`; the others are those of `GradientAccumulationOptimizerV2`.
    """

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int | tf.Tensor,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: DType = None,
        reduction_method: Any = Reduction.SUM,
        name: str = "CrossReplicaGradientAccumulationOptimizerV2",
    ) -> None:
        super().__init__(
            CrossReplicaOptimizer(opt),
            num_mini_batches,
            offload_weight_update_variables,
            replicated_optimizer_state_sharding,
            dtype,
            reduction_method,
            name,
        )


class GradientAccumulationOptimizer(GradientAccumulationOptimizerV2):
    """The older accumulating optimizer, for gradient descent with and without momentum: sums gradients.

    Args:
        opt: a `GradientDescentOptimizer` or `MomentumOptimizer`, or one of these in a `CrossReplicaOptimizer` or
            `ShardedOptimizer`, or both.
        num_mini_batches: micro-batches to an update.
        verify_usage: without effect in emulation: the loop is always checked.
        name: of this optimizer.

    Raises:
        ValueError: for a number below 1, or another kind of optimizer.
    """

    def __init__(
        self, opt: Any, num_mini_batches: int, verify_usage: bool = True, name: str = "GradientAccumulationOptimizer"
    ) -> None:
        inner = opt
        while isinstance(inner, (CrossReplicaOptimizer, ShardedOptimizer)):
            inner = inner._opt  # noqa: SLF001 - of this package
        if not isinstance(inner, (tf.compat.v1.train.GradientDescentOptimizer, tf.compat.v1.train.MomentumOptimizer)):
            raise ValueError(
                "Only GradientDescentOptimizer and MomentumOptimizer are supported by GradientAccumulationOptimizer. "
                f"Received: {type(inner).__name__}. Use GradientAccumulationOptimizerV2 for any other."
            )
        record_ignored(f"{name}.verify_usage", None if verify_usage else False, "the loop is always checked")
        super().__init__(opt, num_mini_batches, name=name)


class CrossReplicaGradientAccumulationOptimizer(GradientAccumulationOptimizer):
    """The older accumulating optimizer that averages over replicas; arguments as `GradientAccumulationOptimizer`."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "CrossReplicaGradientAccumulationOptimizer",
    ) -> None:
        super().__init__(CrossReplicaOptimizer(opt), num_mini_batches, verify_usage, name)


def _check(num_mini_batches: int | tf.Tensor, offload: bool | None, sharded: bool) -> None:
    if not isinstance(num_mini_batches, tf.Tensor) and checked_integer("num_mini_batches", num_mini_batches) < 1:
        raise ValueError("num_mini_batches must be a positive number.")
    if sharded and offload is False:
        raise ValueError(
            "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
            "offload_weight_update_variables."
        )
