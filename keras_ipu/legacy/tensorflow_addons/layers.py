"""Stand-in for `tensorflow_addons.layers`: weight normalization, for Keras on TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_ipu.stock import models as keras_models

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
        # What mixed precision makes of variables is for the layer's products only: nothing of that is assigned.
        with keras_models.uncast_variables():
            kernel = self.layer.kernel
            values = _wide(kernel)
            direction = values * ops.rsqrt(ops.maximum(_squares(values), _SHORTEST))
            self._set(inputs, values)
            normalised = ops.cast(direction * _wide(self.g), kernel.dtype)
        with _instead([(kernel, normalised)]) as scope:
            outputs = self.layer(inputs, **kwargs)
        for loss in scope.losses:
            self.add_loss(loss)
        return outputs

    def _set(self, inputs: Any, kernel: Any) -> None:
        """Sets `g`, and the bias if it is set by data, in the first call."""
        weights = [self.g, *([self.layer.bias] if self._has_bias() else [])]
        now = ops.cond(
            ops.cast(self.is_set, "bool"),
            lambda: [ops.convert_to_tensor(each) for each in weights],
            lambda: [ops.cast(each, weights[0].dtype) for each in self._first(inputs, kernel)],
        )
        for weight, value in zip(weights, now, strict=True):
            weight.assign(value)
        self.is_set.assign(ops.ones_like(self.is_set))

    def _first(self, inputs: Any, kernel: Any) -> list[Any]:
        """Returns the values of `g`, and the bias if there is one to set, by the first batch."""
        if not self.data_init:
            return [ops.reshape(ops.sqrt(_squares(kernel)), self.g.shape)]
        activation, self.layer.activation = self.layer.activation, keras.activations.linear
        try:
            with keras.StatelessScope():  # which drops the layer's losses
                outputs = _wide(self.layer(inputs))
        finally:
            self.layer.activation = activation
        mean, variance = ops.moments(outputs, list(range(len(outputs.shape) - 1)))
        scale = 1 / ops.sqrt(variance + _EPSILON)
        return [_wide(self.g) * scale, *([-mean * scale] if self._has_bias() else [])]

    def _has_bias(self) -> bool:
        return self.data_init and getattr(self.layer, "bias", None) is not None

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The layer's."""
        return self.layer.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "data_init": self.data_init}


def _wide(values: Any) -> Any:
    """Returns values in float32 or wider, in which the least length and variance are not 0."""
    return ops.cast(values, keras.backend.result_type(values.dtype, "float32"))


def _squares(kernel: Any) -> Any:
    return ops.sum(ops.square(kernel), list(range(len(kernel.shape) - 1)), keepdims=True)


@contextlib.contextmanager
def _instead(values: list[tuple[Any, Any]]) -> Iterator[Any]:
    """Within it variables have other values; yields what has the losses that layers add."""
    with keras.StatelessScope(state_mapping=values, collect_losses=True) as scope:
        yield scope
