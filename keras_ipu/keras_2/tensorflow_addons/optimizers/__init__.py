"""Stand-in for `tensorflow_addons.optimizers` for Keras 2: SGDW, AdamW, LAMB, and weight decay for others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from keras_ipu.addons.decay_arguments import AdamWArguments, SGDWArguments, with_decay_of_file
from keras_ipu.addons.lamb_arguments import LAMBArguments
from keras_ipu.keras_2.addons.optimizers import LAMBIpuOptimizer

__all__ = ["LAMB", "SGDW", "AdamW", "DecoupledWeightDecayExtension", "extend_with_decoupled_weight_decay"]


_SCHEDULE = tf_keras.optimizers.schedules.LearningRateSchedule


class DecoupledWeightDecayExtension:
    """Base class, before an optimizer of Keras 2, that subtracts `weight_decay * variable` before each update.

    Args:
        weight_decay: a number, a tensor, or a schedule of the optimizer's iterations.
        exclude_from_weight_decay: patterns of the names of variables that do not decay.
        kwargs: the optimizer's arguments.
    """

    def __init__(
        self, weight_decay: Any, exclude_from_weight_decay: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._decay_var_list: frozenset[Any] | None = None
        self.exclude_from_weight_decay = list(exclude_from_weight_decay or ())
        self._set_hyper("weight_decay", weight_decay)  # type: ignore[attr-defined]

    def minimize(self, loss: Any, var_list: Any, grad_loss: Any = None, name: Any = None, **kwargs: Any) -> Any:
        """Minimises a loss; `decay_var_list` are the variables that decay, by default all."""
        decay = kwargs.pop("decay_var_list", None)
        gradients = self._compute_gradients(  # type: ignore[attr-defined]
            loss, var_list=var_list, grad_loss=grad_loss, tape=kwargs.get("tape")
        )
        return self.apply_gradients(gradients, name=name, decay_var_list=decay)

    def apply_gradients(self, grads_and_vars: Any, name: Any = None, decay_var_list: Any = None, **kwargs: Any) -> Any:
        """Applies gradients; `decay_var_list` are the variables that decay, by default all."""
        self._decay(decay_var_list)
        return super().apply_gradients(grads_and_vars, name=name, **kwargs)  # type: ignore[misc]

    def _decay(self, variables: Any) -> None:
        self._decay_var_list = None if variables is None else frozenset(each.ref() for each in variables)

    def _prepare_local(self, device: Any, dtype: Any, apply_state: Any) -> None:
        super()._prepare_local(device, dtype, apply_state)  # type: ignore[misc]
        decay = self._get_hyper("weight_decay")  # type: ignore[attr-defined]
        now = decay(self.iterations) if isinstance(decay, _SCHEDULE) else decay  # type: ignore[attr-defined]
        apply_state[device, dtype]["wd_t"] = tf.cast(now, dtype)

    def _decayed(self, var: Any, apply_state: Any) -> list[Any]:
        excluded = any(re.search(pattern, var.name) for pattern in self.exclude_from_weight_decay)
        if excluded or (self._decay_var_list is not None and var.ref() not in self._decay_var_list):
            return []
        place = var.device, var.dtype.base_dtype
        now = ((apply_state or {}).get(place) or self._fallback_apply_state(*place))["wd_t"]  # type: ignore[attr-defined]
        return [var.assign_sub(now * var, use_locking=self._use_locking)]  # type: ignore[attr-defined]

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        with tf.control_dependencies(self._decayed(var, apply_state)):
            return super()._resource_apply_dense(grad, var, apply_state=apply_state)  # type: ignore[misc]

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Any, var: Any, indices: Any, apply_state: Any = None, **kwargs: Any
    ) -> Any:
        # Which calls `_resource_apply_sparse`, but for SGD.
        apply = super()._resource_apply_sparse_duplicate_indices  # type: ignore[misc]
        with tf.control_dependencies(self._decayed(var, apply_state)):
            return apply(grad, var, indices, apply_state=apply_state, **kwargs)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Returns an optimizer of these arguments."""
        config = with_decay_of_file(config, tf_keras.optimizers.schedules, custom_objects)
        return super().from_config(config, custom_objects)  # type: ignore[misc]

    def get_config(self) -> dict[str, Any]:
        """The optimizer's arguments and those of the decay."""
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        decay = self._serialize_hyperparameter("weight_decay")  # type: ignore[attr-defined]
        return {**config, "weight_decay": decay, "exclude_from_weight_decay": self.exclude_from_weight_decay}


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
    """Returns a class of an optimizer with `DecoupledWeightDecayExtension`, whose first argument is the decay."""
    name = f"{base_optimizer.__name__}WithDecoupledWeightDecay"
    return type(name, (DecoupledWeightDecayExtension, base_optimizer), {})


@tf_keras.utils.register_keras_serializable(package="Addons")
class SGDW(SGDWArguments, DecoupledWeightDecayExtension, tf_keras.optimizers.legacy.SGD):
    """Stochastic gradient descent with decoupled weight decay: see `SGDWArguments`."""


@tf_keras.utils.register_keras_serializable(package="Addons")
class AdamW(AdamWArguments, DecoupledWeightDecayExtension, tf_keras.optimizers.legacy.Adam):
    """Adam with decoupled weight decay: see `AdamWArguments`."""


@tf_keras.utils.register_keras_serializable(package="Addons")
class LAMB(LAMBArguments, LAMBIpuOptimizer):
    """LAMB, with the arguments of TensorFlow Addons: see `LAMBArguments`."""
