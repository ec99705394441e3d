"""`IpuOptimizerBase`: slot dtypes and compute precision of the addons' optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from ipu_tf.emulation import record_ignored


class IpuOptimizerBase(keras.optimizers.Optimizer):
    """Base class of optimizers whose state may have another dtype than the variables.

    Args:
        name: of this optimizer.
        optimizer_compute_precisions: the dtypes that the stages of an update are computed in.
        outline_apply_gradients: whether updates share code on the IPU; recorded, no effect.
        outline_apply_gradients_kwargs: of the shared code; recorded, no effect.
        kwargs: of `keras.optimizers.Optimizer`. `lr` is taken for `learning_rate`; with `decay` the learning rate of
            an update is `learning_rate / (1 + decay * updates so far)`. `weight_decay` is
            multiplied by `learning_rate`.
    """

    def __init__(
        self,
        name: str,
        optimizer_compute_precisions: Sequence[Any] = ("float32",),
        outline_apply_gradients: bool = False,
        outline_apply_gradients_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        record_ignored("IpuOptimizerBase.outline_apply_gradients", outline_apply_gradients or None)
        record_ignored("IpuOptimizerBase.outline_apply_gradients_kwargs", outline_apply_gradients_kwargs)
        decay, rate = kwargs.pop("decay", None), kwargs.pop("lr", kwargs.get("learning_rate", 0.001))
        super().__init__(name=name, **{**kwargs, "learning_rate": rate})
        self.decay = float(decay or 0.0)
        self.opt_dtypes = tuple(keras.backend.standardize_dtype(dtype) for dtype in optimizer_compute_precisions)
        self.outline_apply_gradients = outline_apply_gradients
        self.outline_apply_gradients_kwargs = dict(outline_apply_gradients_kwargs or {})
        self._slots: dict[str, list[Any]] = {}

    def build(self, variables: Sequence[Any]) -> None:
        """Creates the slots named by `slot_names`, for each variable."""
        if self.built:
            return
        keras.optimizers.Optimizer.build(self, variables)
        self._slots = {
            slot: [self._new_slot(variable, slot) for variable in variables] for slot in self.get_slot_names()
        }

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of each trainable variable."""
        return []

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """Returns the dtype of a slot; None for that of the variable.

        Args:
            var: a trainable variable.
            slot_name: one of `get_slot_names()`.
        """
        return None

    def get_slot(self, var: Any, slot_name: str) -> Any:
        """Returns a slot of a trainable variable.

        Raises:
            KeyError: if there is no such slot or the optimizer is not built.
        """
        return self._slots[slot_name][self._get_variable_index(var)]

    def _new_slot(self, variable: Any, slot: str) -> Any:
        dtype = keras.backend.standardize_dtype(self.get_slot_dtype(variable, slot) or variable.dtype)
        name = path_of(variable).replace("/", "_").replace(":", "_")
        return self.add_variable(variable.shape, "zeros", dtype, name=f"{name}_{slot}")

    def _backend_update_step(self, grads: Any, trainable_variables: Any, learning_rate: Any) -> Any:
        """Updates variables by the rate of now: the optimizer's, a number or a schedule's, after so much decay."""
        if self.decay:
            rate, updates = ops.cast(learning_rate, "float32"), ops.cast(self.iterations, "float32")
            learning_rate = rate / (1.0 + self.decay * updates)
        return super()._backend_update_step(grads, trainable_variables, learning_rate)

    def _get_hyper(self, name: str, dtype: Any = None) -> Any:
        """Returns a hyperparameter, as Keras 2's `Optimizer._get_hyper` did."""
        value = getattr(self, name)
        return value if dtype is None else ops.cast(value, dtype)

    def _computed(self, value: Any, stage: int = 0) -> Any:
        """Casts a value to the precision of a stage."""
        return ops.cast(value, self.opt_dtypes[stage])

    def _store(self, variable: Any, value: Any) -> None:
        self.assign(variable, ops.cast(value, variable.dtype))

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {
            **super().get_config(),
            **({"decay": self.decay} if self.decay else {}),
            "optimizer_compute_precisions": list(self.opt_dtypes),
            "outline_apply_gradients": self.outline_apply_gradients,
            "outline_apply_gradients_kwargs": dict(self.outline_apply_gradients_kwargs),
        }


def dtype_name(dtype: Any) -> str | None:
    """The name of a dtype for a configuration; None stays None."""
    return None if dtype is None else str(keras.backend.standardize_dtype(dtype))


def path_of(variable: Any) -> str:
    """The path of a variable of Keras; the name of one of TensorFlow."""
    return str(getattr(variable, "path", variable.name))


def known_path(optimizer: Any, variable: Any) -> str:
    """The path of a variable as an optimizer was built with it: Keras on TensorFlow hands it on as TensorFlow's."""
    return path_of(optimizer._trainable_variables[optimizer._get_variable_index(variable)])
