"""`AdamIpuOptimizer` and `LAMBIpuOptimizer` for Keras 2: first and second moments of gradients as slots."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from keras_ipu.keras_2.addons.optimizers.ipu_optimizer_base import IpuOptimizerBase


class _Moments(IpuOptimizerBase):
    """Running means `m` of gradients and `v` of their squares."""

    def _set_moments(self, learning_rate: Any, betas: tuple[float, float], epsilon: float, **dtypes: Any) -> None:
        self._set_hyper("learning_rate", learning_rate)
        self._set_hyper("beta_1", betas[0])
        self._set_hyper("beta_2", betas[1])
        self.epsilon = epsilon
        self._slot_dtypes = dtypes

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of each trainable variable."""
        return ["m", "v"]

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """Returns the dtype of a slot; None for that of the variable."""
        return self._slot_dtypes[f"{slot_name}_dtype"]

    def _updated_moments(self, grad: Any, var: Any, debiasing: bool) -> tuple[Any, Any]:
        """Updates `m` and `v`; returns both, bias-corrected, in the precision of the first stage."""
        grad = self._computed(grad)
        step = self._computed(self.iterations + 1)
        corrected = []
        for slot, beta, sample in (("m", "beta_1", grad), ("v", "beta_2", tf.square(grad))):
            holder, decay = self.get_slot(var, slot), self._get_hyper(beta, self.opt_dtypes[0])
            moment = decay * self._computed(holder) + (1.0 - decay) * sample
            holder.assign(tf.cast(moment, holder.dtype), use_locking=self._use_locking)
            corrected.append(moment / (1.0 - tf.pow(decay, step)) if debiasing else moment)
        return corrected[0], corrected[1]

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        hyper = {name: self._serialize_hyperparameter(name) for name in ("learning_rate", "beta_1", "beta_2")}
        dtypes = {name: dtype and tf.as_dtype(dtype).name for name, dtype in self._slot_dtypes.items()}
        return {**super().get_config(), **hyper, **dtypes, "epsilon": self.epsilon}


@tf_keras.utils.register_keras_serializable(package="keras_ipu")
class AdamIpuOptimizer(_Moments):
    """Adam, whose update is `learning_rate * m_hat / (sqrt(v_hat) + epsilon)`.

    Args:
        learning_rate: a float, a tensor or a schedule.
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
        super().__init__(name, **kwargs)
        rate = kwargs.get("lr", learning_rate)
        self._set_moments(rate, (beta_1, beta_2), epsilon, m_dtype=m_dtype, v_dtype=v_dtype, vhat_dtype=vhat_dtype)
        self.amsgrad, self.debiasing = amsgrad, debiasing

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of each trainable variable."""
        return [*super().get_slot_names(), *(["vhat"] if self.amsgrad else [])]

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        mean, square = self._updated_moments(grad, var, self.debiasing)
        if self.amsgrad:
            largest = self.get_slot(var, "vhat")
            square = tf.maximum(self._computed(largest), square)
            largest.assign(tf.cast(square, largest.dtype), use_locking=self._use_locking)
        change = self._computed(self._rate(var, apply_state)) * mean / (tf.sqrt(square) + self.epsilon)
        return var.assign_sub(tf.cast(change, var.dtype), use_locking=self._use_locking)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {**super().get_config(), "amsgrad": self.amsgrad, "debiasing": self.debiasing}


@tf_keras.utils.register_keras_serializable(package="keras_ipu")
class LAMBIpuOptimizer(_Moments):
    """LAMB: Adam with each update rescaled by the norm of its variable (arXiv 1904.00962).

    Args:
        learning_rate: a float, a tensor or a schedule.
        beta_1: decay of the mean `m` of gradients.
        beta_2: decay of the mean `v` of their squares.
        epsilon: added to the denominator.
        weight_decay_rate: how much of a variable is added to its change.
        exclude_from_weight_decay: regular expressions; variables whose name has a match do not decay.
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
        optimizer_compute_precisions: Sequence[Any] = (tf.float32, tf.float32),
        **kwargs: Any,
    ) -> None:
        if len(optimizer_compute_precisions) != 2:
            raise ValueError(
                "Must provide a list of two elements for the optimizer compute precision. The final stage of the "
                "weight update can be done in a different precision to the initial stage."
            )
        super().__init__(name, optimizer_compute_precisions, **kwargs)
        rate = kwargs.get("lr", learning_rate)
        self._set_moments(rate, (beta_1, beta_2), epsilon or 1e-7, m_dtype=m_dtype, v_dtype=v_dtype)
        self._set_hyper("weight_decay_rate", weight_decay_rate)
        self.exclude_from_weight_decay = tuple(exclude_from_weight_decay or ())
        self.exclude_from_layer_adaptation = tuple(exclude_from_layer_adaptation or ())
        self.debiasing, self.weight_norm_clip = debiasing, weight_norm_clip

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        mean, square = self._updated_moments(grad, var, self.debiasing)
        change = mean / (tf.sqrt(square) + self.epsilon)
        name = var.name.partition(":")[0]
        if not _matches(self.exclude_from_weight_decay, name):
            change += self._get_hyper("weight_decay_rate", self.opt_dtypes[0]) * self._computed(var)
        rate = self._computed(self._rate(var, apply_state))
        if not _matches(self.exclude_from_layer_adaptation, name):
            rate *= self._trust_ratio(var, change)
        change = self._computed(rate, 1) * self._computed(change, 1)
        return var.assign_sub(tf.cast(change, var.dtype), use_locking=self._use_locking)

    def _trust_ratio(self, var: Any, change: Any) -> Any:
        """Returns the norm of a variable over that of its update; 1 if one of them is zero."""
        size, step = tf.norm(self._computed(var)), tf.norm(change)
        if self.weight_norm_clip is not None:
            size = tf.minimum(size, self._computed(self.weight_norm_clip))
        return tf.where((size > 0) & (step > 0), tf.math.divide_no_nan(size, step), tf.ones_like(step))

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {
            **super().get_config(),
            "weight_decay_rate": self._serialize_hyperparameter("weight_decay_rate"),
            "exclude_from_weight_decay": list(self.exclude_from_weight_decay),
            "exclude_from_layer_adaptation": list(self.exclude_from_layer_adaptation),
            "debiasing": self.debiasing,
            "weight_norm_clip": self.weight_norm_clip,
        }


def _matches(patterns: Sequence[str], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)
