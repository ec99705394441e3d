"""Layers and optimizers of the IPU's addons in plain Keras, without the arguments that choose how an IPU computes."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

layers: Any = tf.keras.layers
optimizers: Any = tf.keras.optimizers


#: Arguments that say in which precision, and how, an IPU computes.
IPU_OPTIONS = (
    *("m_dtype", "v_dtype", "vhat_dtype", "optimizer_compute_precisions", "debiasing"),
    *("outline_apply_gradients", "outline_apply_gradients_kwargs"),
)


class AdamIpuOptimizer(optimizers.Adam):
    """Adam whose epsilon is added to the bias-corrected root, as in the addons. Keras adds it before the correction."""

    def __init__(self, *args: Any, **options: Any) -> None:
        for name in IPU_OPTIONS:
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
        # Asked for once an update: a schedule may count its calls.
        rate = apply_state[var.device, var.dtype.base_dtype]["lr_t"]
        return var.assign_sub(rate * self._change(corrected[0] / (tf.sqrt(corrected[1]) + self.epsilon), var))

    def _change(self, adam: Any, var: Any) -> Any:
        """Returns what is subtracted at a learning rate of 1, given what Adam subtracts."""
        return adam


class LAMBIpuOptimizer(AdamIpuOptimizer):
    """Adam with weight decay, whose change of a weight is scaled to the norm of the weight (arXiv 1904.00962)."""

    def __init__(
        self,
        *args: Any,
        weight_decay_rate: float = 0.0,
        exclude_from_weight_decay: Any = (),
        exclude_from_layer_adaptation: Any = (),
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.weight_decay_rate = weight_decay_rate
        self.without_decay, self.unscaled = exclude_from_weight_decay, exclude_from_layer_adaptation

    def _change(self, adam: Any, var: Any) -> Any:
        if not any(re.search(pattern, var.name) for pattern in self.without_decay):
            adam += self.weight_decay_rate * var
        if any(re.search(pattern, var.name) for pattern in self.unscaled):
            return adam
        of_weight, of_change = tf.norm(var), tf.norm(adam)
        return adam * tf.where((of_weight > 0) & (of_change > 0), of_weight / of_change, 1.0)


class GroupNormalization(layers.Layer):
    """Normalises groups of the last axis: group `g` has the channels `g`, `g + groups`, ..., as the IPU's has them."""

    def __init__(self, groups: int = 2, epsilon: float = 1e-3, channels_axis: int = -1, **options: Any) -> None:
        super().__init__(name=options.get("name"))
        self.groups, self.epsilon, self.axis = groups, epsilon, channels_axis
        self.initializers = options.get("gamma_initializer") or "ones", options.get("beta_initializer") or "zeros"

    def build(self, input_shape: Any) -> None:
        """Creates the weights of the channels."""
        assert self.axis in (-1, len(input_shape) - 1), "channels are the last axis here"
        made = zip(("gamma", "beta"), self.initializers, strict=True)
        self.parameters = [self.add_weight(name, input_shape[-1:], initializer=each) for name, each in made]

    def call(self, inputs: Any) -> Any:
        """Returns the inputs, normalised."""
        shape = tf.shape(inputs)
        grouped = tf.reshape(inputs, [shape[0], -1, inputs.shape[-1] // self.groups, self.groups])
        mean, variance = tf.nn.moments(grouped, [1, 2], keepdims=True)
        normalised = tf.reshape((grouped - mean) / tf.sqrt(variance + self.epsilon), shape)
        return normalised * self.parameters[0] + self.parameters[1]


class LayerNormalization(layers.LayerNormalization):
    """Keras's, which is told whether it trains, as the addons' is."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Returns the inputs, normalised."""
        return super().call(inputs)


def extend_with_decoupled_weight_decay(base: Any) -> Any:
    """Returns a subclass of an optimizer, before whose update a weight loses a part of itself (arXiv 1711.05101)."""

    class Decaying(base):
        def __init__(self, weight_decay: Any, **options: Any) -> None:
            super().__init__(**options)
            self.weight_decay = weight_decay

        def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
            decay = self.weight_decay(self.iterations) if callable(self.weight_decay) else self.weight_decay
            with tf.control_dependencies([var.assign_sub(tf.cast(decay, var.dtype) * var)]):
                return super()._resource_apply_dense(grad, var, apply_state)

    return Decaying


def outlined_function(function: Any = None, **options: Any) -> Any:
    """Returns the function, or a decorator that does."""
    return (lambda given: given) if function is None else function


def serialized_matmul(a: Any, b: Any, *places: Any, **options: Any) -> Any:
    """A product, whatever it is cut into."""
    return tf.matmul(a, b, **{name: options[name] for name in options if name.startswith("transpose_")})


NAMES: dict[str, Any] = {
    "SGDW": extend_with_decoupled_weight_decay(optimizers.SGD),
    "extend_with_decoupled_weight_decay": extend_with_decoupled_weight_decay,
    "embedding_lookup": lambda params, ids, **options: tf.gather(params, ids),
    "serialized_matmul": serialized_matmul,
    "outlined_function": outlined_function,
    "recomputation_checkpoint": lambda x, name=None: x,
    "AdamIpuOptimizer": AdamIpuOptimizer,
    "LAMBIpuOptimizer": LAMBIpuOptimizer,
    "Dropout": layers.Dropout,
    "GroupNormalization": GroupNormalization,
    "LSTM": layers.LSTM,
    "LayerNormalization": LayerNormalization,
    "gelu": lambda x: tf.nn.gelu(x, approximate=True),
    "swish": tf.nn.swish,
}
