"""Group normalisation: mean and variance of groups of channels, scale and offset."""

from __future__ import annotations

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Groups:
    """Groups of channels of a tensor.

    Attributes:
        count: how many groups; divides the number of channels.
        channels_axis: 1 or the last.
        strided: whether channel c belongs to group `c % count`, else to group `c // (channels / count)`.
    """

    count: int
    channels_axis: int
    strided: bool

    def statistics(self, inputs: tf.Tensor, epsilon: float) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and inverse standard deviation of each group of each sample: `[samples * count]` float32 each."""
        split = self._split(inputs)
        mean, variance = tf.nn.moments(split, self._reduced(split))
        return tf.reshape(mean, [-1]), tf.reshape(tf.math.rsqrt(variance + epsilon), [-1])

    def normalise(
        self, inputs: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, mean: tf.Tensor, inverse_deviation: tf.Tensor
    ) -> tf.Tensor:
        """`(inputs - mean) * inverse_deviation * gamma + beta`, worked out in float32.

        Args:
            inputs: `[samples, ..., channels, ...]`.
            gamma: `[channels]`.
            beta: `[channels]`.
            mean: `[samples * count]`.
            inverse_deviation: `[samples * count]`.

        Returns:
            Shape and dtype of the inputs.
        """
        split = self._split(inputs)
        mean, inverse_deviation = (self._of_groups(values, split) for values in (mean, inverse_deviation))
        normalised = tf.reshape((split - mean) * inverse_deviation, tf.shape(inputs))
        normalised.set_shape(inputs.shape)
        gamma, beta = (self._of_channels(values, inputs) for values in (gamma, beta))
        return tf.cast(normalised * gamma + beta, inputs.dtype)

    def _group_axis(self) -> int:
        """Dimension of the groups once the channels are split in two dimensions."""
        return self.channels_axis + 1 if self.strided else self.channels_axis

    def _split(self, inputs: tf.Tensor) -> tf.Tensor:
        sizes = tf.unstack(tf.shape(inputs)) if not inputs.shape.is_fully_defined() else inputs.shape.as_list()
        channels = inputs.shape.as_list()[self.channels_axis]
        parts = [channels // self.count, self.count] if self.strided else [self.count, channels // self.count]
        shape = [*sizes[: self.channels_axis], *parts, *sizes[self.channels_axis + 1 :]]
        return tf.reshape(tf.cast(inputs, tf.float32), shape)

    def _reduced(self, split: tf.Tensor) -> list[int]:
        return [axis for axis in range(1, split.shape.rank) if axis != self._group_axis()]

    def _of_groups(self, values: tf.Tensor, split: tf.Tensor) -> tf.Tensor:
        shape = [1] * split.shape.rank
        shape[0], shape[self._group_axis()] = -1, self.count
        return tf.reshape(tf.cast(values, tf.float32), shape)

    def _of_channels(self, values: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
        shape = [1] * inputs.shape.rank
        shape[self.channels_axis] = inputs.shape.as_list()[self.channels_axis]
        return tf.reshape(tf.cast(values, tf.float32), shape)
