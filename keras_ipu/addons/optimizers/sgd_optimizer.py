"""`SGDIpuOptimizer`: gradient descent with a configurable dtype of its momentum."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_ipu.addons.optimizers.ipu_optimizer_base import IpuOptimizerBase, dtype_name
from keras_ipu.optimizers.gradient_reduction import dense


@keras.saving.register_keras_serializable(package="keras_ipu")
class SGDIpuOptimizer(IpuOptimizerBase, keras.optimizers.SGD):
    """Gradient descent with momentum.

    Args:
        learning_rate: a float or a schedule.
        momentum: of the descent, from 0 to 1.
        nesterov: whether the momentum is Nesterov's.
        name: of this optimizer.
        momentum_accum_dtype: dtype of the velocity; None for that of the variable.
        kwargs: of `IpuOptimizerBase`.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "SGD",
        momentum_accum_dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        kwargs = {"learning_rate": learning_rate, **kwargs}
        super().__init__(name, momentum=float(momentum), nesterov=nesterov, **kwargs)
        self.momentum_accum_dtype = dtype_name(momentum_accum_dtype)

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of each trainable variable."""
        return ["momentum"] if self.momentum else []

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """Returns the dtype of a slot; None for that of the variable."""
        return self.momentum_accum_dtype

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable by its gradient."""
        step = -self._computed(learning_rate) * self._computed(dense(gradient))
        change = step
        if self.momentum:
            holder, momentum = self.get_slot(variable, "momentum"), self._computed(self.momentum)
            velocity = momentum * self._computed(holder) + step
            self._store(holder, velocity)
            change = momentum * velocity + step if self.nesterov else velocity
        self.assign_add(variable, ops.cast(change, variable.dtype))

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {**super().get_config(), "momentum_accum_dtype": self.momentum_accum_dtype}
