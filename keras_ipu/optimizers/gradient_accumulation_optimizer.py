"""`GradientAccumulationOptimizer`: applies gradients accumulated over several micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from ipu_tf._arguments.counts import checked_integer
from ipu_tf.emulation import record_ignored
from keras_ipu.optimizers.gradient_reduction import add_gradient, reduction_named
from keras_ipu.optimizers.inner_optimizer_calls import apply_if
from keras_ipu.optimizers.ipu_optimizer import CapturedGrads, IpuOptimizer

_SHARDING_NEEDS_OFFLOADING = (
    "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
    "offload_weight_update_variables."
)


@keras.saving.register_keras_serializable(package="keras_ipu")
class GradientAccumulationOptimizer(IpuOptimizer):
    """Accumulates the gradients of several micro-batches and applies the result once.

    Everything in the wrapped optimizer happens once for `num_mini_batches` calls of `apply`: its iterations, its
    learning rate schedule, its clipping. With `num_mini_batches=1` you get `opt` itself.

    Args:
        opt: the Keras optimizer to wrap.
        num_mini_batches: micro-batches an update, at least 1.
        offload_weight_update_variables: where the IPU keeps optimizer state; recorded, no effect.
        replicated_optimizer_state_sharding: whether replicas share optimizer state; recorded, no effect.
        dtype: of the accumulators: None for that of each variable, a dtype, or a function from variable to dtype.
            The wrapped optimizer gets gradients of this dtype.
        reduction_method: a `GradientAccumulationReductionMethod` or its name: SUM, MEAN or RUNNING_MEAN.
        name: of this optimizer.

    Raises:
        ValueError: for less than one micro-batch, an unknown reduction method, or state that is sharded but not
            offloaded.
    """

    def __new__(cls, opt: Any, num_mini_batches: int, *args: Any, **kwargs: Any) -> Any:
        """`opt` itself if there is nothing to accumulate."""
        return opt if checked_integer("num_mini_batches", num_mini_batches) == 1 else super().__new__(cls)

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: Any = None,
        reduction_method: Any = "SUM",
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        if opt is self:  # which `__new__` gave, as there is nothing to accumulate
            return
        if checked_integer("num_mini_batches", num_mini_batches) < 1:
            raise ValueError("num_mini_batches must be >= 1")
        offload, sharding = _state(offload_weight_update_variables), _state(replicated_optimizer_state_sharding)
        if sharding and offload is False:
            raise ValueError(_SHARDING_NEEDS_OFFLOADING)
        record_ignored("GradientAccumulationOptimizer.offload_weight_update_variables", offload)
        record_ignored("GradientAccumulationOptimizer.replicated_optimizer_state_sharding", sharding or None)
        super().__init__(opt, name)
        self.num_mini_batches = int(num_mini_batches)
        self.reduction_method = reduction_named(reduction_method)
        self._accumulator_dtype = dtype
        self._options = {"offload_weight_update_variables": offload, "replicated_optimizer_state_sharding": sharding}

    def build(self, variables: Sequence[Any]) -> None:
        """Creates the accumulators, and the variables of the wrapped optimizer.

        Args:
            variables: the model's trainable variables.
        """
        super().build(variables)
        self._position = self.add_variable((), "zeros", "int32", name="mini_batch")
        self._accumulators = [self._accumulator_for(variable) for variable in variables]

    def update(self, grads: list[Any], variables: list[Any], captured_grads: CapturedGrads = None) -> None:
        """Accumulates gradients; with those of the last micro-batch the wrapped optimizer applies the result.

        Captured gradients are passed on unchanged: those of the last micro-batch.
        """
        self.accumulate(grads, variables, lambda totals: self._update_inner(totals, variables, captured_grads))

    def accumulate(self, grads: list[Any], variables: list[Any], apply: Callable[[list[Any]], None]) -> None:
        """Accumulates gradients, and calls `apply` with the result where these were the last micro-batch's."""
        holders = [self._accumulators[self._get_variable_index(variable)] for variable in variables]
        position = keras.ops.convert_to_tensor(self._position)
        totals = [
            None if grad is None else add_gradient(holder, grad, position, self.reduction_method, self.num_mini_batches)
            for grad, holder in zip(grads, holders, strict=True)
        ]
        due = keras.ops.equal(position, self.num_mini_batches - 1)
        apply_if(due, lambda: apply(totals), [*self._trainable_variables, *self.inner_optimizer.variables])
        for total, holder in zip(totals, holders, strict=True):
            if total is not None:
                self.assign(holder, keras.ops.where(due, keras.ops.zeros_like(total), total))
        self.assign(self._position, (position + 1) % self.num_mini_batches)

    def _update_inner(self, grads: list[Any], variables: list[Any], captured_grads: CapturedGrads) -> None:
        super().update(grads, variables, captured_grads)

    def _accumulator_for(self, variable: Any) -> Any:
        dtype = self._accumulator_dtype
        dtype = dtype(variable) if callable(dtype) else dtype
        dtype = keras.backend.standardize_dtype(variable.dtype if dtype is None else dtype)
        return self.add_variable(variable.shape, "zeros", dtype, name="gradient_accumulator")

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        dtype = self._accumulator_dtype
        if dtype is not None:
            dtype = (
                keras.saving.serialize_keras_object(dtype)
                if callable(dtype)
                else keras.backend.standardize_dtype(dtype)
            )
        return {
            **super().get_config(),
            "num_mini_batches": self.num_mini_batches,
            **self._options,
            "dtype": dtype,
            "reduction_method": self.reduction_method.name,
        }


def _state(value: Any) -> bool | None:
    """Parses a three-state option: True, False or None, or Graphcore's protocol buffer name of one."""
    if isinstance(value, str):
        return {"THREESTATE_ON": True, "THREESTATE_OFF": False, "THREESTATE_UNDEFINED": None}[value]
    return None if value is None else bool(value)
