"""`GroupNormalization` and `InstanceNormalization` layers."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_ipu.addons.layers.ipu_layer import IPULayer


@keras.saving.register_keras_serializable(package="keras_ipu")
class GroupNormalization(IPULayer):
    """Normalises groups of channels of each sample to mean 0 and variance 1 (arXiv 1803.08494).

    Statistics are computed in float32. There are no running averages: training makes no difference.

    Args:
        groups: number of groups; must divide the channels.
        channels_axis: 1 or the last one.
        center: whether `beta` is added.
        scale: whether the result is multiplied by `gamma`.
        epsilon: added to the variance.
        beta_initializer: of `beta`; default: zeros.
        gamma_initializer: of `gamma`; default: ones.
        strided_channel_grouping: whether group `g` has the channels `g, g + groups, ...`, as the IPU's library has
            it, or neighbouring channels.
        trainable: whether `beta` and `gamma` are trained.
        kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        groups: int = 2,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 1e-3,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        strided_channel_grouping: bool = True,
        trainable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable=trainable, **kwargs)
        self.groups = groups
        self.channels_axis = channels_axis
        self.center = center
        self.scale = scale
        self.epsilon = epsilon
        self.beta_initializer = keras.initializers.get("zeros" if beta_initializer is None else beta_initializer)
        self.gamma_initializer = keras.initializers.get("ones" if gamma_initializer is None else gamma_initializer)
        self.strided_channel_grouping = strided_channel_grouping
        self.gamma = self.beta = None

    def build(self, input_shape: Any) -> None:
        """Creates the weights `gamma` and `beta`.

        Raises:
            ValueError: if the channels cannot be grouped.
        """
        if input_shape is None:
            raise ValueError("Input has undefined rank.")
        rank = len(input_shape)
        if not -rank <= self.channels_axis < rank:
            raise ValueError("Axis is out of bounds.")
        self._axis = self.channels_axis % rank
        channels = input_shape[self._axis]
        groups = self._groups_of(channels)
        if groups > channels:
            raise ValueError(f"Invalid groups {groups} for {channels} channels.")
        if channels % groups:
            raise ValueError(f"{channels} channels is not commensurate with {groups} groups.")
        if self._axis not in (1, rank - 1):
            raise ValueError(
                "Unsupported data format, group norm only supports NCHW(channel axis 1) and NHWC (channel axis -1)."
            )
        self._add_parameters((channels,))

    def _groups_of(self, channels: int) -> int:
        return self.groups

    def _add_parameters(self, shape: tuple[int, ...]) -> None:
        if self.scale:
            self.gamma = self.add_weight(shape=shape, initializer=self.gamma_initializer, name="gamma")
        if self.center:
            self.beta = self.add_weight(shape=shape, initializer=self.beta_initializer, name="beta")
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The inputs, normalised.

        Args:
            inputs: `[batch, ..., channels]` or `[batch, channels, ...]`.
            training: no effect.
        """
        x = ops.moveaxis(ops.cast(inputs, "float32"), self._axis, -1)
        shape = ops.shape(x)
        channels = shape[-1]
        groups = self._groups_of(channels)
        members = channels // groups
        per_group = (members, groups) if self.strided_channel_grouping else (groups, members)
        axes = (1, 2) if self.strided_channel_grouping else (1, 3)
        x = normalised(ops.reshape(x, (shape[0], math.prod(shape[1:-1]), *per_group)), axes, self.epsilon)
        x = self._scaled(ops.reshape(x, shape))
        return ops.cast(ops.moveaxis(x, -1, self._axis), self.compute_dtype)

    def _scaled(self, x: Any) -> Any:
        """float32 times `gamma` plus `beta`, which lie along the last dimensions."""
        x = x if self.gamma is None else x * self._laid_out(self.gamma)
        return x if self.beta is None else x + self._laid_out(self.beta)

    def _laid_out(self, parameter: Any) -> Any:
        return ops.cast(parameter, "float32")

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The input's shape."""
        return input_shape

    def _shared_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "center": self.center,
            "scale": self.scale,
            "epsilon": self.epsilon,
            "beta_initializer": keras.initializers.serialize(self.beta_initializer),
            "gamma_initializer": keras.initializers.serialize(self.gamma_initializer),
            "trainable": self.trainable,
        }

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        own = ("groups", "channels_axis", "strided_channel_grouping")
        return {**self._shared_config(), **{name: getattr(self, name) for name in own}}


@keras.saving.register_keras_serializable(package="keras_ipu")
class InstanceNormalization(GroupNormalization):
    """Normalises each channel of each sample to mean 0 and variance 1 (arXiv 1607.08022).

    Args:
        channels_axis: 1 or the last one.
        kwargs: of `GroupNormalization` but `groups` and `strided_channel_grouping`.
    """

    def __init__(self, channels_axis: int = -1, center: bool = True, scale: bool = True, **kwargs: Any) -> None:
        super().__init__(0, channels_axis, center, scale, **kwargs)

    def _groups_of(self, channels: int) -> int:
        return channels

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {**self._shared_config(), "channels_axis": self.channels_axis}


def normalised(x: Any, axes: Any, epsilon: float) -> Any:
    """A float32 tensor of mean 0 and variance 1 along some axes."""
    mean = ops.mean(x, axes, keepdims=True)
    variance = ops.mean(ops.square(x - mean), axes, keepdims=True)
    return (x - mean) * ops.rsqrt(variance + epsilon)
