"""`LAMBIpuOptimizer`: LAMB with configurable dtypes of its slots and of its two stages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_ipu.addons.optimizers.ipu_optimizer_base import dtype_name, known_path
from keras_ipu.addons.optimizers.moments import MomentsOptimizer


@keras.saving.register_keras_serializable(package="keras_ipu")
class LAMBIpuOptimizer(MomentsOptimizer):
    """LAMB: Adam with each update rescaled by the norm of its variable (arXiv 1904.00962).

    Args:
        learning_rate: a float or a schedule.
        beta_1: decay of the mean `m` of gradients.
        beta_2: decay of the mean `v` of their squares.
        epsilon: added to the denominator.
        weight_decay_rate: how much of a variable is added to its change.
        exclude_from_weight_decay: regular expressions; variables whose path has a match do not decay.
        exclude_from_layer_adaptation: regular expressions; changes of such variables are not rescaled.
        name: of this optimizer.
        debiasing: whether `m` and `v` are corrected for starting at zero.
        m_dtype: dtype of `m`; None for that of the variable.
        v_dtype: dtype of `v`; None for that of the variable.
        weight_norm_clip: the largest size of a variable that counts.
        optimizer_compute_precisions: two dtypes: of the change, and of its rescaling.
        kwargs: of `IpuOptimizerBase`.

    Raises:
        ValueError: unless there are two precisions.
        TypeError: for Keras's `weight_decay`, which would be beside `weight_decay_rate` and not rescaled.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay_rate: float = 0.0,
        exclude_from_weight_decay: Sequence[str] | None = None,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        name: str = "LAMB",
        debiasing: bool = True,
        m_dtype: Any = None,
        v_dtype: Any = None,
        weight_norm_clip: float | None = None,
        optimizer_compute_precisions: Sequence[Any] = ("float32", "float32"),
        **kwargs: Any,
    ) -> None:
        if len(optimizer_compute_precisions) != 2:
            raise ValueError(
                "Must provide a list of two elements for the optimizer compute precision. The final stage of the "
                "weight update can be done in a different precision to the initial stage."
            )
        if kwargs.get("weight_decay") is not None:
            raise TypeError("`LAMBIpuOptimizer` has no argument `weight_decay`: its decay is `weight_decay_rate`.")
        super().__init__(name, optimizer_compute_precisions, **{"learning_rate": learning_rate, **kwargs})
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon or keras.config.epsilon()
        self.weight_decay_rate, self.weight_norm_clip = weight_decay_rate, weight_norm_clip
        # `exclude_from_weight_decay` is a method of Keras 3's optimizers.
        self.not_decayed = tuple(exclude_from_weight_decay or ())
        self.not_adapted = tuple(exclude_from_layer_adaptation or ())
        self.debiasing, self.m_dtype, self.v_dtype = debiasing, dtype_name(m_dtype), dtype_name(v_dtype)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable by its gradient."""
        mean, square = self._updated_moments(gradient, variable)
        change = mean / (ops.sqrt(square) + self.epsilon)
        path = known_path(self, variable)
        if self._do_use_weight_decay(path):
            change = change + self.weight_decay_rate * self._computed(variable)
        rate = self._computed(learning_rate)
        if self._do_layer_adaptation(path):
            rate = rate * self._trust_ratio(variable, change)
        change = self._computed(rate, 1) * self._computed(change, 1)
        self.assign_sub(variable, ops.cast(change, variable.dtype))

    def _trust_ratio(self, variable: Any, change: Any) -> Any:
        """Returns the norm of a variable over that of its update; 1 if one of them is zero."""
        size, step = _norm(self._computed(variable)), _norm(change)
        if self.weight_norm_clip is not None:
            size = ops.minimum(size, self._computed(self.weight_norm_clip))
        meaningful = ops.logical_and(size > 0, step > 0)
        ones = ops.ones_like(step)
        return ops.where(meaningful, size / ops.where(meaningful, step, ones), ones)

    def _do_use_weight_decay(self, path: str) -> bool:
        return not any(re.search(pattern, path) for pattern in self.not_decayed)

    def _do_layer_adaptation(self, path: str) -> bool:
        return not any(re.search(pattern, path) for pattern in self.not_adapted)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        names = ("beta_1", "beta_2", "epsilon", "weight_decay_rate", "debiasing", "m_dtype", "v_dtype")
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in (*names, "weight_norm_clip")},
            "exclude_from_weight_decay": list(self.not_decayed),
            "exclude_from_layer_adaptation": list(self.not_adapted),
        }


def _norm(values: Any) -> Any:
    return ops.sqrt(ops.sum(ops.square(values)))
