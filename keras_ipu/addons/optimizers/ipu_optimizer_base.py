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
            an update is `learning_rate / (1 + decay * updates so far)`.
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
        super().__init__(name=name, **_with_learning_rate(kwargs))
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
        name = getattr(variable, "path", variable.name).replace("/", "_").replace(":", "_")
        return self.add_variable(variable.shape, "zeros", dtype, name=f"{name}_{slot}")

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
            "optimizer_compute_precisions": list(self.opt_dtypes),
            "outline_apply_gradients": self.outline_apply_gradients,
            "outline_apply_gradients_kwargs": dict(self.outline_apply_gradients_kwargs),
        }


def _with_learning_rate(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Converts Keras 2's optimizer arguments to Keras 3's."""
    found = dict(arguments)
    found["learning_rate"] = found.pop("lr", found.get("learning_rate", 0.001))
    decay = found.pop("decay", 0.0)
    if decay:
        found["learning_rate"] = keras.optimizers.schedules.InverseTimeDecay(found["learning_rate"], 1, decay)
    return found


def dtype_name(dtype: Any) -> str | None:
    """The name of a dtype for a configuration; None stays None."""
    return None if dtype is None else str(keras.backend.standardize_dtype(dtype))
