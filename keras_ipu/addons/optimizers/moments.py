"""`MomentsOptimizer`: base class of Adam and LAMB, with first and second moments as slots."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_ipu.addons.optimizers.ipu_optimizer_base import IpuOptimizerBase
from keras_ipu.optimizers.gradient_reduction import dense


class MomentsOptimizer(IpuOptimizerBase):
    """Base class of optimizers with running means `m` of gradients and `v` of their squares.

    Attributes:
        beta_1: decay of `m`.
        beta_2: decay of `v`.
        debiasing: whether both are corrected for starting at zero.
        m_dtype: of `m`; None for that of the variable.
        v_dtype: of `v`; None for that of the variable.
    """

    beta_1: float
    beta_2: float
    debiasing: bool
    m_dtype: Any
    v_dtype: Any

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of each trainable variable."""
        return ["m", "v"]

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """Returns the dtype of a slot; None for that of the variable."""
        return getattr(self, f"{slot_name}_dtype")

    def _updated_moments(self, gradient: Any, variable: Any) -> tuple[Any, Any]:
        """Updates `m` and `v`; returns both, bias-corrected, in the precision of the first stage."""
        gradient = self._computed(dense(gradient))
        corrected = []
        for slot, beta, sample in (("m", self.beta_1, gradient), ("v", self.beta_2, ops.square(gradient))):
            holder, decay = self.get_slot(variable, slot), self._computed(beta)
            moment = decay * self._computed(holder) + (1.0 - decay) * sample
            self._store(holder, moment)
            step = self._computed(self.iterations + 1)
            corrected.append(moment / (1.0 - ops.power(decay, step)) if self.debiasing else moment)
        return corrected[0], corrected[1]
