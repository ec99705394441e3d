"""`ALSGradientAccumulationOptimizer`: gradient accumulation around automatic loss scaling."""

from __future__ import annotations

from typing import Any

import keras

from keras_ipu.optimizers.als_optimizer import ALSOptimizer
from keras_ipu.optimizers.als_settings import SETTINGS
from keras_ipu.optimizers.gradient_accumulation_optimizer import GradientAccumulationOptimizer
from keras_ipu.optimizers.ipu_optimizer import CapturedGrads

#: Settings and state of the wrapped optimizer that are those of this one too.
_SHOWN = frozenset(SETTINGS) | {
    "decrease_factor",
    "histogram",
    "loss_scaling_factor",
    "normalized_histogram",
    "previous_loss_scaling_factor",
    "settings",
    "update_counter",
}
_ONLY_ALS = "ALSGradientAccumulationOptimizer can only be used with instances of ALSOptimizer."


@keras.saving.register_keras_serializable(package="keras_ipu")
class ALSGradientAccumulationOptimizer(GradientAccumulationOptimizer):
    """Accumulates gradients and applies the result once, with automatic loss scaling.

    The scaled gradients of every micro-batch go into the statistics and are scaled back before they are accumulated.
    The loss scaling factor is adapted with each update, so it stays the same during an accumulation.
    The settings and state of the `ALSOptimizer` are attributes of this one too. A setting may be changed by either.

    Args:
        als_optimizer: the `ALSOptimizer` to wrap.
        num_mini_batches: micro-batches an update; 1 gives `als_optimizer` itself.
        offload_weight_update_variables: where the IPU keeps optimizer state; recorded, no effect.
        replicated_optimizer_state_sharding: whether replicas share optimizer state; recorded, no effect.
        dtype: of the accumulators, as for `GradientAccumulationOptimizer`.
        reduction_method: a `GradientAccumulationReductionMethod` or its name.
        name: of this optimizer.

    Raises:
        ValueError: for another optimizer, or as `GradientAccumulationOptimizer` does.
    """

    def __new__(cls, als_optimizer: Any, num_mini_batches: int, *args: Any, **kwargs: Any) -> Any:
        """`als_optimizer` itself if there is nothing to accumulate."""
        if not isinstance(als_optimizer, ALSOptimizer):
            raise ValueError(_ONLY_ALS)
        return super().__new__(cls, als_optimizer, num_mini_batches)

    def __init__(
        self,
        als_optimizer: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: Any = None,
        reduction_method: Any = "SUM",
        name: str = "ALSGradientAccumulationOptimizer",
    ) -> None:
        super().__init__(
            als_optimizer,
            num_mini_batches,
            offload_weight_update_variables,
            replicated_optimizer_state_sharding,
            dtype,
            reduction_method,
            name,
        )

    @property
    def als_optimizer(self) -> ALSOptimizer:
        """The wrapped optimizer."""
        optimizer: ALSOptimizer = self.inner_optimizer
        return optimizer

    def update(self, grads: list[Any], variables: list[Any], captured_grads: CapturedGrads = None) -> None:
        """Accumulates unscaled gradients and their statistics; updates the weights in the last micro-batch."""
        als = self.als_optimizer
        als.observe(grads, captured_grads)
        self.accumulate(als.unscaled(grads), variables, lambda totals: als.apply_unscaled(totals, variables))

    def get_scaled_loss(self, loss: Any) -> Any:
        """A loss times the loss scaling factor."""
        return self.als_optimizer.get_scaled_loss(loss)

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """Returns the gradients of the scaled loss, as `ALSOptimizer.get_gradients` does."""
        return self.als_optimizer.get_gradients(loss, params)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SHOWN:
            setattr(self.inner_optimizer, name, value)
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in _SHOWN:
            return getattr(self.inner_optimizer, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
