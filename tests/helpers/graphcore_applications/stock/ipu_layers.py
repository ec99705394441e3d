"""Layers and optimizers of the IPU's addons in plain Keras, without the arguments that choose how an IPU computes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

layers: Any = tf.keras.layers
optimizers: Any = tf.keras.optimizers


class AdamIpuOptimizer(optimizers.Adam):
    """Adam whose epsilon is added to the bias-corrected root, as in the addons. Keras adds it before the correction."""

    def __init__(self, *args: Any, **options: Any) -> None:
        for name in ("m_dtype", "v_dtype", "vhat_dtype", "optimizer_compute_precisions", "debiasing"):
            options.pop(name, None)
        super().__init__(*args, **options)

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        step = tf.cast(self.iterations + 1, tf.float32)
        decays = self._get_hyper("beta_1", tf.float32), self._get_hyper("beta_2", tf.float32)
        corrected = []
        for slot, decay, sample in zip(("m", "v"), decays, (grad, grad**2), strict=True):
            moment = self.get_slot(var, slot)
            moment.assign(moment + (1 - decay) * (sample - moment))
            corrected.append(moment / (1 - decay**step))
        rate = self._decayed_lr(tf.float32)
        return var.assign_sub(rate * corrected[0] / (tf.sqrt(corrected[1]) + self.epsilon))


class SGDW(optimizers.SGD):
    """Gradient descent before which a weight loses a part of itself (arXiv 1711.05101)."""

    def __init__(self, weight_decay: Any, **options: Any) -> None:
        super().__init__(**options)
        self.weight_decay = weight_decay

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        decay = self.weight_decay(self.iterations) if callable(self.weight_decay) else self.weight_decay
        with tf.control_dependencies([var.assign_sub(tf.cast(decay, var.dtype) * var)]):
            return super()._resource_apply_dense(grad, var, apply_state)


NAMES: dict[str, Any] = {
    "SGDW": SGDW,
    "AdamIpuOptimizer": AdamIpuOptimizer,
    "Dropout": layers.Dropout,
    "LSTM": layers.LSTM,
    "LayerNormalization": layers.LayerNormalization,
    "gelu": tf.nn.gelu,
    "swish": tf.nn.swish,
}
