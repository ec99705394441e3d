"""`tf.layers.batch_normalization` of TensorFlow 1, with statistics over groups of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._config.configured_numerics import configured_numerics
from ipu_tf.lowering.programs.trace_settings import noted_norm_group
from ipu_tf.lowering.tensorflow.tf1_private import Layer
from ipu_tf.ops.cross_replica_ops import cross_replica_sum

_v1 = tf.compat.v1
_REFUSED = ("renorm", "renorm_clipping", "virtual_batch_size", "adjustment")


class BatchNormalization(Layer):
    """Batch normalisation layer over all axes but some, with trained scale and offset.

    Moving statistics are updated by operations in the collection `UPDATE_OPS`, as TensorFlow 1 has it: make the
    training operation depend on them. Statistics and parameters of float16 inputs are float32.

    Args:
        axis: the axis, or axes, that keep statistics of their own; the last one by default.
        momentum: of the moving statistics.
        epsilon: added to variances.
        center: whether there is an offset, `beta`.
        scale: whether there is a scale, `gamma`.
        beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer: zeros, ones, zeros
            and ones by default.
        beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint: of the trained parameters.
        trainable: whether scale and offset are trainable variables.
        name: of the layer's variable scope.
        fused: of rank 4 inputs, False takes the batch's variance into the moving one as it is; otherwise the unbiased
            estimate is taken, as TensorFlow's fused kernel does.

    Raises:
        ValueError: batch renormalisation, virtual batches or an adjustment are asked for.
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        moving_mean_initializer: Any = None,
        moving_variance_initializer: Any = None,
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        trainable: bool = True,
        name: str | None = None,
        fused: bool | None = None,
        **kwargs: Any,
    ) -> None:
        _refuse(kwargs)
        super().__init__(trainable=trainable, name=name, **kwargs)
        self.axis = [axis] if isinstance(axis, int) else list(axis)
        self.momentum = momentum
        self.epsilon = epsilon
        self.fused = fused
        zeros, ones = _v1.zeros_initializer(), _v1.ones_initializer()
        self._parameters = {
            "gamma": (gamma_initializer or ones, gamma_regularizer, gamma_constraint) if scale else None,
            "beta": (beta_initializer or zeros, beta_regularizer, beta_constraint) if center else None,
        }
        self._statistics = {
            "moving_mean": moving_mean_initializer or zeros,
            "moving_variance": moving_variance_initializer or ones,
        }

    def build(self, input_shape: Any) -> None:
        """Makes the variables, one value an index of the kept axis; of several axes in the inputs' rank."""
        sizes = tf.TensorShape(input_shape).as_list()
        kept = {axis % len(sizes) for axis in self.axis}
        shape = [size if axis in kept else 1 for axis, size in enumerate(sizes)]
        shape = shape if len(kept) > 1 else [size for axis, size in enumerate(sizes) if axis in kept]
        dtype = tf.float32 if self.dtype in ("float16", "bfloat16") else tf.as_dtype(self.dtype or tf.float32)
        for name, given in self._parameters.items():
            weight = None
            if given is not None:
                initializer, regularizer, constraint = given
                weight = self.add_weight(
                    name,
                    shape,
                    dtype,
                    initializer=initializer,
                    regularizer=regularizer,
                    constraint=constraint,
                    trainable=True,
                )
            setattr(self, name, weight)
        for name, initializer in self._statistics.items():
            setattr(self, name, self.add_weight(name, shape, dtype, initializer=initializer, trainable=False))
        self.built = True

    def call(self, inputs: tf.Tensor, training: Any = False) -> tf.Tensor:
        """The normalised inputs, of their shape and dtype.

        Args:
            inputs: what is normalised.
            training: whether by the batch's statistics, rather than the moving ones: a bool, or a bool tensor.
        """
        rank = inputs.shape.rank
        kept = sorted(axis % rank for axis in self.axis)
        reduced = [axis for axis in range(rank) if axis not in kept]
        x = tf.cast(inputs, self.moving_mean.dtype)
        mean, variance = self._chosen(x, reduced, training)
        shape = [size if axis in kept else 1 for axis, size in enumerate(inputs.shape)]
        mean, variance, beta, gamma = (
            None if value is None else tf.reshape(value, shape) for value in (mean, variance, self.beta, self.gamma)
        )
        return tf.cast(tf.nn.batch_normalization(x, mean, variance, beta, gamma, self.epsilon), inputs.dtype)

    def _chosen(self, x: tf.Tensor, reduced: list[int], training: Any) -> tuple[Any, Any]:
        """The statistics to normalise by; those of training update the moving ones."""
        moving = (tf.identity(self.moving_mean), tf.identity(self.moving_variance))
        static = tf.get_static_value(training) if tf.is_tensor(training) else bool(training)
        if static is not None and not static:
            return moving
        mean, variance = (tf.reshape(each, self.moving_mean.shape) for each in tf.nn.moments(x, reduced))
        mean, variance = self._over_replicas(mean, variance, x.shape.rank)
        self._update(x, mean, variance, tf.constant(True) if static else tf.cast(training, tf.bool))
        if static:
            return mean, variance
        return tf.where(training, mean, moving[0]), tf.where(training, variance, moving[1])

    def _is_fused(self, rank: int | None) -> bool:
        """Returns whether TensorFlow 1 computes it by one op, which takes images of one axis of channels."""
        return self.fused is not False and rank == 4 and len(self.axis) == 1 and self.axis[0] % 4 in (1, 3)

    def _over_replicas(self, mean: tf.Tensor, variance: tf.Tensor, rank: int | None) -> tuple[tf.Tensor, tf.Tensor]:
        """The statistics of the group of replicas, where one is configured and the layer is fused."""
        group = configured_numerics().norm_group
        if not self._is_fused(rank):
            return mean, variance
        mean = noted_norm_group(mean, group)
        if group == 1:
            return mean, variance
        common = cross_replica_sum(mean / group, group)
        return common, cross_replica_sum((variance + (mean - common) ** 2) / group, group)

    def _update(self, x: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, training: tf.Tensor) -> None:
        if self._is_fused(x.shape.rank):
            count = tf.cast(tf.size(x) / tf.size(mean), variance.dtype)
            variance *= count / tf.maximum(count - 1, 1)
        for moving, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
            change = tf.where(training, (moving - new) * (1 - self.momentum), tf.zeros_like(new))
            _v1.add_to_collection(_v1.GraphKeys.UPDATE_OPS, _v1.assign_sub(moving, change))


def batch_normalization(
    inputs: tf.Tensor,
    axis: int | Sequence[int] = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = None,
    gamma_initializer: Any = None,
    moving_mean_initializer: Any = None,
    moving_variance_initializer: Any = None,
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    beta_constraint: Any = None,
    gamma_constraint: Any = None,
    training: Any = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: bool | None = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_momentum: float = 0.99,
    fused: bool | None = None,
    virtual_batch_size: int | None = None,
    adjustment: Any = None,
) -> tf.Tensor:
    """Batch normalisation with variables of the current variable scope. Arguments as `BatchNormalization`'s.

    Args:
        training: a bool or a bool tensor; whether the batch's statistics are used, and kept.
        reuse: whether a layer of that name is used again.
        renorm_momentum: without effect, since batch renormalisation is refused.

    Raises:
        ValueError: batch renormalisation, virtual batches or an adjustment are asked for.
    """
    layer = BatchNormalization(
        axis,
        momentum,
        epsilon,
        center,
        scale,
        beta_initializer,
        gamma_initializer,
        moving_mean_initializer,
        moving_variance_initializer,
        beta_regularizer,
        gamma_regularizer,
        beta_constraint,
        gamma_constraint,
        trainable,
        name,
        fused,
        renorm=renorm,
        renorm_clipping=renorm_clipping,
        virtual_batch_size=virtual_batch_size,
        adjustment=adjustment,
        _reuse=reuse,
        _scope=name,
    )
    return layer.apply(inputs, training=training)


def _refuse(arguments: dict[str, Any]) -> None:
    arguments.pop("renorm_momentum", None)
    for name in _REFUSED:
        if arguments.pop(name, None):
            raise ValueError(
                f"tf.layers.batch_normalization: {name} is not provided. Leave it out for plain batch normalisation."
            )
