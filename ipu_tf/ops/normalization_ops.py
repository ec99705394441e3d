"""Group, layer and instance normalisation with variables of their own, in TF1's way."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._ops.group_norm import Groups

_LOWEST_EPSILON = 1.53e-5


@dataclasses.dataclass(frozen=True)
class _Parameters:
    """Settings of gamma and beta; see `group_norm`."""

    center: bool
    scale: bool
    initializers: Mapping[str, Any] | None
    reuse: bool | None
    collections: Any
    trainable: bool
    scope: Any

    def make(self, inputs: tf.Tensor, channels: int, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        """Creates gamma and beta, `[channels]` each, in a variable scope `name` unless another is given."""
        with tf.compat.v1.variable_scope(self.scope, name, [inputs], reuse=self.reuse):
            beta = self._one("beta", self.center, 0.0, inputs, channels)
            return self._one("gamma", self.scale, 1.0, inputs, channels), beta

    def _one(self, name: str, variable: bool, value: float, inputs: tf.Tensor, channels: int) -> tf.Tensor:
        if not variable:
            return tf.constant(value, inputs.dtype, [channels])
        collections = self.collections
        return tf.compat.v1.get_variable(
            name,
            [channels],
            inputs.dtype,
            (self.initializers or {}).get(name, tf.compat.v1.constant_initializer(value)),
            collections=collections.get(name) if isinstance(collections, Mapping) else collections,
            trainable=self.trainable,
        )


def group_norm(
    inputs: Any,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1.53e-5,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
    strided_channel_grouping: bool = True,
) -> tf.Tensor:
    """Normalises each sample over groups of channels (https://arxiv.org/abs/1803.08494).

    Args:
        inputs: at least two dimensions, the first being samples.
        groups: how many groups; divides the number of channels.
        channels_axis: where the channels are: 1 or the last.
        center: whether to add a variable `beta`.
        scale: whether to multiply by a variable `gamma`.
        epsilon: what is added to variances.
        param_initializers: initialisers by the names `gamma` (ones) and `beta` (zeros).
        reuse: of the variable scope.
        variables_collections: collections for the variables; or a mapping from `gamma` and `beta` to collections.
        training: recorded, without effect: the statistics are always those of the inputs.
        trainable: whether the variables are.
        scope: variable scope instead of `GroupNorm`.
        strided_channel_grouping: whether channel c belongs to group `c % groups`, as weights trained on an IPU expect;
            else groups are made of neighbours, as is common elsewhere.

    Returns:
        Shape and dtype of the inputs.

    Raises:
        ValueError: if the rank or the channels are unknown, or the groups do not divide the channels.

    Example:
        >>> import tensorflow as tf
        >>> [round(x, 3) for x in group_norm(tf.constant([[1.0, 2.0, 3.0, 6.0]])).numpy()[0].tolist()]
        [-1.0, -1.0, 1.0, 1.0]
    """
    _check_settings("group_norm", epsilon, training)
    parameters = _Parameters(center, scale, param_initializers, reuse, variables_collections, trainable, scope)
    inputs = tf.convert_to_tensor(inputs)
    return _normalised(inputs, groups, channels_axis, epsilon, strided_channel_grouping, parameters, "GroupNorm")


def layer_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1.53e-5,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """`group_norm` with one group: statistics of all dimensions of a sample together; the scope is `LayerNorm`.

    Args, Returns and Raises as for `group_norm`.
    """
    inputs = tf.convert_to_tensor(inputs)
    _check_axis(inputs, channels_axis)
    _check_settings("layer_norm", epsilon, training)
    parameters = _Parameters(center, scale, param_initializers, reuse, variables_collections, trainable, scope)
    return _normalised(inputs, 1, channels_axis, epsilon, False, parameters, "LayerNorm")


def instance_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1.53e-5,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """`group_norm` with one group a channel; the scope is `InstanceNorm`.

    Args, Returns and Raises as for `group_norm`.
    """
    inputs = tf.convert_to_tensor(inputs)
    _check_axis(inputs, channels_axis)
    _check_settings("instance_norm", epsilon, training)
    parameters = _Parameters(center, scale, param_initializers, reuse, variables_collections, trainable, scope)
    # Unknown channels are reported below.
    groups = inputs.shape.as_list()[channels_axis] or 1
    return _normalised(inputs, groups, channels_axis, epsilon, False, parameters, "InstanceNorm")


def _check_settings(function: str, epsilon: float, training: Any) -> None:
    given = None if training is True else training
    record_ignored(f"{function}.training", given, "the statistics are always those of the inputs")
    if epsilon < _LOWEST_EPSILON:
        text = "%s has an epsilon of %g. Values below %g can give NaN in float16: choose a larger one."
        tf.get_logger().warning(text, function, epsilon, _LOWEST_EPSILON)


def _check_axis(inputs: tf.Tensor, channels_axis: int) -> None:
    if inputs.shape.rank is None:
        raise ValueError(f"Inputs {_name(inputs)} has undefined rank.")
    if channels_axis > inputs.shape.rank - 1:
        raise ValueError("Axis is out of bounds.")


def _name(inputs: tf.Tensor) -> str:
    return inputs.name if hasattr(inputs, "graph") else f"of shape {inputs.shape}"


def _positive_axis(inputs: tf.Tensor, channels_axis: int) -> int:
    _check_axis(inputs, channels_axis)
    axis = channels_axis + inputs.shape.rank if channels_axis < 0 else channels_axis
    if axis not in (1, inputs.shape.rank - 1):
        raise ValueError(
            "Unsupported data format, group norm only supports NCHW(channel axis 1) and NHWC (channel axis -1)."
        )
    return axis


def _normalised(
    inputs: tf.Tensor,
    groups: int,
    channels_axis: int,
    epsilon: float,
    strided: bool,
    parameters: _Parameters,
    scope: str,
) -> tf.Tensor:
    axis = _positive_axis(inputs, channels_axis)
    channels = inputs.shape.as_list()[axis]
    if channels is None:
        raise ValueError(f"Inputs {_name(inputs)} has undefined channel dimension: {axis}.")
    if groups > channels:
        raise ValueError(f"Invalid groups {groups} for {channels} channels.")
    if channels % groups:
        raise ValueError(f"{channels} channels is not commensurate with {groups} groups.")
    gamma, beta = parameters.make(inputs, channels, scope)
    layout = Groups(groups, axis, strided)
    mean, inverse_deviation = layout.statistics(inputs, epsilon)
    return layout.normalise(inputs, gamma, beta, mean, inverse_deviation)
