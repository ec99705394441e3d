"""Stand-in for `tensorflow_addons.layers`: weight normalization, for Keras on TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

__all__ = ["WeightNormalization"]
#: Added to a variance before its root is taken.
_EPSILON = 1e-10
#: The least square of a length that a kernel is divided by.
_SHORTEST = 1e-12


@keras.saving.register_keras_serializable(package="Addons")
class WeightNormalization(keras.layers.Wrapper):
    """Divides a layer's kernel `v` by its length, and scales it: `g * v / ||v||` (arXiv 1602.07868).

    The length is that of the weights of one output. The first batch sets `g`: to the lengths, so that the layer
    computes what it did, or by its data.

    By its data, `g` becomes `1 / s` and the bias `-m / s`, where `m` and `s` are the mean and the standard deviation of
    what the layer computes from the first batch before its activation. That is TensorFlow Addons' rule. The paper takes
    `m` and `s` with the kernel `v / ||v||` and without the bias, so that outputs have mean 0 and variance 1; here that
    is so where the lengths are 1 and the bias is 0, and otherwise the variance is `1 / ||v||^2`.

    Args:
        layer: with a `kernel`, whose last dimension is that of its outputs.
        data_init: whether data of the first batch sets `g` and the bias.
        kwargs: those of layers.
    """

    def __init__(self, layer: Any, data_init: bool = True, **kwargs: Any) -> None:
        super().__init__(layer, **kwargs)
        self.data_init = data_init

    def build(self, input_shape: Any = None) -> None:
        """Creates the layer's weights, the scale, and whether it is set."""
        super().build(input_shape)
        if not hasattr(self.layer, "kernel"):
            raise ValueError(f"`WeightNormalization` must wrap a layer with a kernel. Received: {self.layer}")
        outputs = (self.layer.kernel.shape[-1],)
        self.g = self.add_weight(shape=outputs, initializer="ones", name="g", dtype=self.layer.kernel.dtype)
        self.is_set = self.add_weight(shape=(), initializer="zeros", trainable=False, name="initialized")

    def call(self, inputs: Any, **kwargs: Any) -> Any:
        """Applies the layer with its kernel normalised."""
        kernel = self.layer.kernel
        direction = kernel * ops.rsqrt(ops.maximum(self._squares(kernel), _SHORTEST))
        biases = [self.layer.bias] if self._has_bias() else []
        weights = [self.g, *biases]
        is_set = ops.cast(self.is_set, "bool")
        now = ops.cond(
            is_set,
            lambda: [ops.convert_to_tensor(each) for each in weights],
            lambda: self._first(inputs, kernel, biases),
        )
        for weight, value in zip(weights, now, strict=True):
            weight.assign(value)
        self.is_set.assign(ops.ones_like(self.is_set))
        with _instead([(kernel, direction * ops.convert_to_tensor(self.g))]) as scope:
            outputs = self.layer(inputs, **kwargs)
        for loss in scope.losses:
            self.add_loss(loss)
        return outputs

    def _first(self, inputs: Any, kernel: Any, biases: list[Any]) -> list[Any]:
        """Returns the values of `g` and the bias that the first batch sets."""
        if not self.data_init:
            lengths = ops.reshape(ops.sqrt(self._squares(kernel)), self.g.shape)
            return [lengths, *map(ops.convert_to_tensor, biases)]
        activation, self.layer.activation = self.layer.activation, keras.activations.linear
        try:
            with keras.StatelessScope():  # which drops the layer's losses
                outputs = self.layer(inputs)
        finally:
            self.layer.activation = activation
        mean, variance = ops.moments(outputs, list(range(len(outputs.shape) - 1)))
        scale = ops.cast(1 / ops.sqrt(variance + _EPSILON), self.g.dtype)
        return [self.g * scale, *(-ops.cast(mean, bias.dtype) * scale for bias in biases)]

    def _has_bias(self) -> bool:
        return self.data_init and getattr(self.layer, "bias", None) is not None

    def _squares(self, kernel: Any) -> Any:
        return ops.sum(ops.square(kernel), list(range(len(kernel.shape) - 1)), keepdims=True)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The layer's."""
        return self.layer.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "data_init": self.data_init}


@contextlib.contextmanager
def _instead(values: list[tuple[Any, Any]]) -> Iterator[Any]:
    """Within it variables have other values; yields what has the losses that layers add."""
    with keras.StatelessScope(state_mapping=values, collect_losses=True) as scope:
        yield scope
