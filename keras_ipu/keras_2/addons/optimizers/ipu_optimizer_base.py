"""`IpuOptimizerBase` and `SGDIpuOptimizer` for Keras 2: slot dtypes and compute precision of the addons' optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from ipu_tf.emulation import record_ignored


class IpuOptimizerBase(tf_keras.optimizers.legacy.Optimizer):
    """Base class of optimizers whose state may have another dtype than the variables.

    Args:
        name: of this optimizer.
        optimizer_compute_precisions: the dtypes that the stages of an update are computed in.
        outline_apply_gradients: whether updates share code on the IPU; recorded, no effect.
        outline_apply_gradients_kwargs: of the shared code; recorded, no effect.
        kwargs: of `tf.keras.optimizers.legacy.Optimizer`: `lr`, `decay`, `clipnorm` and others.
    """

    def __init__(
        self,
        name: str,
        optimizer_compute_precisions: Sequence[Any] = (tf.float32,),
        outline_apply_gradients: bool = False,
        outline_apply_gradients_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        record_ignored("IpuOptimizerBase.outline_apply_gradients", outline_apply_gradients or None)
        record_ignored("IpuOptimizerBase.outline_apply_gradients_kwargs", outline_apply_gradients_kwargs)
        super().__init__(name, **kwargs)
        self._set_hyper("decay", self._initial_decay)
        self.opt_dtypes = tuple(tf.as_dtype(dtype) for dtype in optimizer_compute_precisions)
        self.outline_apply_gradients = outline_apply_gradients
        self.outline_apply_gradients_kwargs = dict(outline_apply_gradients_kwargs or {})

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of each trainable variable."""
        return []

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """Returns the dtype of a slot; None for that of the variable."""
        return None

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for slot in self.get_slot_names():
            for var in var_list:
                self.add_slot_with_dtype(var, slot, self.get_slot_dtype(var, slot) or var.dtype)

    def add_slot_with_dtype(self, var: Any, slot_name: str, dtype: Any, initializer: str = "zeros") -> Any:
        """Creates a slot of a variable, unless it has it, and returns it."""
        dtype = tf.as_dtype(dtype)
        known = self._slots.get(var._unique_id, {}).get(slot_name)
        if dtype == var.dtype.base_dtype or known is not None:
            return self.add_slot(var, slot_name, initializer) if known is None else known
        first = tf_keras.initializers.get(initializer)(var.shape, dtype)
        # As `add_slot` does, which has no argument for the dtype.
        slot = tf.Variable(first, trainable=False, name=f"{var._shared_name}/{slot_name}")
        self._slots.setdefault(var._unique_id, {})[slot_name] = slot
        self._restore_slot_variable(slot_name=slot_name, variable=var, slot_variable=slot)
        self._weights.append(slot)
        return slot

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any, apply_state: Any = None) -> Any:
        """Updates a variable whose gradient is of some of its rows, as by the gradient of all."""
        whole = tf.convert_to_tensor(tf.IndexedSlices(grad, indices, tf.shape(var, out_type=indices.dtype)))
        return self._resource_apply_dense(whole, var, apply_state)

    def _rate(self, var: Any, apply_state: Any) -> Any:
        place = var.device, var.dtype.base_dtype
        return ((apply_state or {}).get(place) or self._fallback_apply_state(*place))["lr_t"]

    def _computed(self, value: Any, stage: int = 0) -> Any:
        """Casts a value to the precision of a stage."""
        return tf.cast(value, self.opt_dtypes[stage])

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        config: dict[str, Any] = super().get_config()
        config["decay"] = self._serialize_hyperparameter("decay")
        config["optimizer_compute_precisions"] = [dtype.name for dtype in self.opt_dtypes]
        return config


@tf_keras.utils.register_keras_serializable(package="keras_ipu")
class SGDIpuOptimizer(IpuOptimizerBase):
    """Stochastic gradient descent with momentum, whose slots may have another dtype than the variables.

    Args:
        learning_rate: a float, a tensor or a schedule.
        momentum: from 0 to 1.
        nesterov: whether the momentum is applied ahead.
        name: of this optimizer.
        momentum_accum_dtype: of the slots; None for that of the variable.
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
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", kwargs.get("lr", learning_rate))
        self._set_hyper("momentum", momentum)
        self._has_momentum, self.nesterov, self.momentum_accum_dtype = bool(momentum), nesterov, momentum_accum_dtype

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of each trainable variable."""
        return ["momentum"] if self._has_momentum else []

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """Returns the dtype of a slot; None for that of the variable."""
        return self.momentum_accum_dtype

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        change = self._computed(self._rate(var, apply_state)) * self._computed(grad)
        if self._has_momentum:
            slot, momentum = self.get_slot(var, "momentum"), self._get_hyper("momentum", self.opt_dtypes[0])
            moment = momentum * self._computed(slot) + change
            slot.assign(tf.cast(moment, slot.dtype), use_locking=self._use_locking)
            change = momentum * moment + change if self.nesterov else moment
        return var.assign_sub(tf.cast(change, var.dtype), use_locking=self._use_locking)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        hyper = {name: self._serialize_hyperparameter(name) for name in ("learning_rate", "momentum")}
        dtype = self.momentum_accum_dtype and tf.as_dtype(self.momentum_accum_dtype).name
        return {**super().get_config(), **hyper, "nesterov": self.nesterov, "momentum_accum_dtype": dtype}
