"""`AdamIpuOptimizer`: Adam with configurable dtypes of its slots."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_ipu.addons.optimizers.ipu_optimizer_base import dtype_name
from keras_ipu.addons.optimizers.moments import MomentsOptimizer


@keras.saving.register_keras_serializable(package="keras_ipu")
class AdamIpuOptimizer(MomentsOptimizer, keras.optimizers.Adam):
    """Adam, whose update is `learning_rate * m_hat / (sqrt(v_hat) + epsilon)`.

    Keras's Adam adds `epsilon` before the correction of `v`, which differs in the order of `epsilon`.

    Args:
        learning_rate: a float or a schedule.
        beta_1: decay of the mean `m` of gradients.
        beta_2: decay of the mean `v` of their squares.
        epsilon: added to the denominator.
        amsgrad: whether the largest `v_hat` so far divides.
        name: of this optimizer.
        m_dtype: dtype of `m`; None for that of the variable.
        v_dtype: dtype of `v`; None for that of the variable.
        vhat_dtype: dtype of the largest `v_hat`; None for that of the variable.
        debiasing: whether `m` and `v` are corrected for starting at zero.
        kwargs: of `IpuOptimizerBase`.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        name: str = "Adam",
        m_dtype: Any = None,
        v_dtype: Any = None,
        vhat_dtype: Any = None,
        debiasing: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs = {"learning_rate": learning_rate, **kwargs}
        super().__init__(name, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, amsgrad=amsgrad, **kwargs)
        self.m_dtype, self.v_dtype, self.vhat_dtype = map(dtype_name, (m_dtype, v_dtype, vhat_dtype))
        self.debiasing = debiasing

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of each trainable variable."""
        return [*super().get_slot_names(), *(["vhat"] if self.amsgrad else [])]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable by its gradient."""
        mean, square = self._updated_moments(gradient, variable)
        if self.amsgrad:
            largest = self.get_slot(variable, "vhat")
            square = ops.maximum(self._computed(largest), square)
            self._store(largest, square)
        change = self._computed(learning_rate) * mean / (ops.sqrt(square) + self.epsilon)
        self.assign_sub(variable, ops.cast(change, variable.dtype))

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        own = {name: getattr(self, name) for name in ("m_dtype", "v_dtype", "vhat_dtype", "debiasing")}
        return {**super().get_config(), **own}
