"""Rules for batch normalisation: training, inference and gradient; statistics over groups of replicas if set."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
from jax import lax

from ipu_tf.device.convolution.summation import reduce_sum
from ipu_tf.device.program import collectives
from ipu_tf.lowering.importer.rules.registry import ArithmeticKind, rule
from ipu_tf.lowering.stablehlo.op import Op


@dataclasses.dataclass(frozen=True)
class _Features:
    """Feature dimension of an array, with reductions over the others.

    Attributes:
        shape: the array's shape.
        index: the feature's dimension.
        epsilon: added to variances.
        replicas: how many there are.
        group: how many consecutive replicas have their statistics in common.
    """

    shape: tuple[int, ...]
    index: int
    epsilon: float
    replicas: int
    group: int

    @classmethod
    def of(cls, importer: Any, op: Op, operand: jax.Array) -> _Features:
        index, epsilon = op.integer("feature_index"), op.attribute("epsilon").value
        return cls(operand.shape, index, epsilon, importer.replicas, importer.module.norm_group)

    @property
    def others(self) -> tuple[int, ...]:
        """All dimensions but the feature's."""
        return tuple(dimension for dimension in range(len(self.shape)) if dimension != self.index)

    @property
    def count(self) -> int:
        """Elements of one feature."""
        return math.prod(self.shape[dimension] for dimension in self.others)

    def spread(self, values: jax.Array) -> jax.Array:
        """Broadcasts one value for each feature to the array's shape."""
        return lax.broadcast_in_dim(values, self.shape, (self.index,))

    def mean(self, values: jax.Array) -> jax.Array:
        """Computes the mean of each feature, over the group of replicas."""
        own = reduce_sum(values, self.others) / self.count
        return own if self.group == 1 else collectives.all_reduce(own, "MEAN", self.replicas, self.group)

    def inverse_deviation(self, variance: jax.Array) -> jax.Array:
        """1 / sqrt(variance + epsilon)."""
        return lax.rsqrt(variance + self.epsilon)


@rule("stablehlo.batch_norm_training", arithmetic=ArithmeticKind.WHOLE)
def _training(importer: Any, op: Op, operand: jax.Array, scale: jax.Array, offset: jax.Array) -> list[jax.Array]:
    features = _Features.of(importer, op, operand)
    mean = features.mean(operand)
    variance = features.mean(lax.square(operand - features.spread(mean)))
    return [_normalized(features, operand, scale, offset, mean, variance), mean, variance]


@rule("stablehlo.batch_norm_inference", arithmetic=ArithmeticKind.WHOLE)
def _inference(importer: Any, op: Op, operand: jax.Array, *parameters: jax.Array) -> jax.Array:
    return _normalized(_Features.of(importer, op, operand), operand, *parameters)


def _normalized(
    features: _Features,
    operand: jax.Array,
    scale: jax.Array,
    offset: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
) -> jax.Array:
    factor = scale * features.inverse_deviation(variance)
    return (operand - features.spread(mean)) * features.spread(factor) + features.spread(offset)


@rule("stablehlo.batch_norm_grad", arithmetic=ArithmeticKind.WHOLE)
def _gradient(
    importer: Any,
    op: Op,
    operand: jax.Array,
    scale: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    gradient: jax.Array,
) -> list[jax.Array]:
    """Computes the gradients of operand, scale and offset."""
    features = _Features.of(importer, op, operand)
    inverse = features.inverse_deviation(variance)
    normalized = (operand - features.spread(mean)) * features.spread(inverse)
    along = gradient - features.spread(features.mean(gradient))
    along -= normalized * features.spread(features.mean(gradient * normalized))
    to_operand = along * features.spread(scale * inverse)
    to_scale = reduce_sum(gradient * normalized, features.others)
    return [to_operand, to_scale, reduce_sum(gradient, features.others)]
