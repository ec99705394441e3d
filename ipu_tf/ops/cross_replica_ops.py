"""Cross-replica sum and mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._arguments.averages import check_averaged
from ipu_tf._arguments.counts import checked_integer
from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf.lowering.stablehlo.replica_divergence import ASSUME_EQUAL
from ipu_tf.lowering.tensorflow import tf_graphs
from ipu_tf.lowering.tensorflow.markers import marker

__all__ = ["assume_equal_across_replicas", "cross_replica_mean", "cross_replica_sum"]


def cross_replica_sum(x: Any, replica_group_size: int | None = None, name: str | None = None) -> tf.Tensor:
    """The sum of every replica's `x`, the same on all of them.

    Its gradient is the cross-replica sum of the incoming gradients.

    Args:
        x: a tensor of any shape.
        replica_group_size: how many consecutive replicas sum theirs together; all by default, and for 0.
        name: for the op.

    Returns:
        A tensor of the shape and dtype of `x`. With one replica it is `x`.

    Raises:
        ValueError: if the group size is negative.
        tf.errors.InvalidArgumentError: when the program is built, if the group size does not divide the replicas.
    """
    group = _checked_group(replica_group_size)
    with tf.name_scope(name or "cross_replica_sum"):
        return _sums([tf.convert_to_tensor(x)], group)[0]


def cross_replica_sums(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The sums of every replica's values, each as of `cross_replica_sum`; instances exchange all of them at once.

    Args:
        values: at least one tensor.
    """
    with tf.name_scope("cross_replica_sum"):
        return _sums(values, None)


def _sums(values: Sequence[tf.Tensor], group: int | None) -> list[tf.Tensor]:
    """Sums over replicas, with their gradient: the sum of every replica's."""

    @tf.custom_gradient
    def summed(*values: tf.Tensor) -> Any:
        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            return _all_reduce(upstream, "ADD", group)

        return _all_reduce(values, "ADD", group), gradient

    return list(summed(*values))


def cross_replica_mean(x: Any, replica_group_size: int | None = None, name: str | None = None) -> tf.Tensor:
    """The mean of every replica's `x`, the same on all of them. It has no gradient, as Graphcore's has none.

    Args:
        x: a tensor of any shape.
        replica_group_size: how many consecutive replicas average theirs; all by default, and for 0.
        name: for the op.

    Returns:
        A tensor of the shape and dtype of `x`. Values are divided before they are added: half precision does not
        overflow.

    Raises:
        ValueError: if the group size is negative.
        TypeError: if `x` is no floating-point or complex tensor.
        tf.errors.InvalidArgumentError: when the program is built, if the group size does not divide the replicas.
    """
    value = tf.convert_to_tensor(x)
    check_averaged("cross_replica_mean", value.dtype)
    with tf.name_scope(name or "cross_replica_mean"):
        return _all_reduce([value], "MEAN", _checked_group(replica_group_size))[0]


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """Marks tensors as equal on all replicas; returns them.

    Where the configuration asks for rounding that is the same on all replicas, it is taken to be so; nothing else
    depends on it in emulation.

    Args:
        tensors: a structure of tensors.
        inplace: recorded, without effect.
    """
    record_ignored("assume_equal_across_replicas.inplace", inplace or None)
    return tf.nest.map_structure(_assumed_equal, tensors)


@tf.custom_gradient
def _assumed_equal(value: tf.Tensor) -> Any:
    value = tf.convert_to_tensor(value)
    if not tf_graphs.in_program(tf.compat.v1.get_default_graph()):
        return tf.identity(value), tf.identity
    [marked] = marker(ASSUME_EQUAL, [value], [tf.TensorSpec(value.shape, value.dtype)])
    return marked, tf.identity


def _all_reduce(values: Sequence[tf.Tensor], operation: str, group: int | None) -> list[tf.Tensor]:
    specs = [tf.TensorSpec(value.shape, value.dtype) for value in values]
    return marker("ipu.all_reduce", values, specs, operation=operation, group=group)


def _checked_group(size: int | None) -> int | None:
    if size is not None and checked_integer("replica_group_size", size) < 0:
        raise ValueError(f"`replica_group_size` must be positive, or None or 0 for all replicas. Received: {size}.")
    return None if size is None else int(size) or None
