"""All-to-all and all-gather between replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf._arguments.counts import checked_count
from ipu_tf.lowering.tensorflow.markers import marker

__all__ = ["all_gather", "all_to_all"]


def all_to_all(
    x: Any, split_dimension: int, concat_dimension: int, replication_factor: int, name: str | None = None
) -> tf.Tensor:
    """Splits `x` and sends part `i` to replica `i`; concatenates what all replicas sent, in their order.

    Its gradient is the exchange with the two dimensions swapped.

    Args:
        x: a tensor whose `split_dimension` the number of replicas divides.
        split_dimension: along which it is cut.
        concat_dimension: along which the parts that come are joined.
        replication_factor: the number of replicas the program runs as.
        name: for the op.

    Raises:
        ValueError: if the replicas do not divide the split dimension; when the program is built, if
            `replication_factor` is not the number of replicas.
    """
    replication_factor = checked_count("replication_factor", replication_factor)

    @tf.custom_gradient
    def exchanged(value: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return _exchange(upstream, concat_dimension, split_dimension, replication_factor)

        return _exchange(value, split_dimension, concat_dimension, replication_factor), gradient

    with tf.name_scope(name or "all_to_all"):
        return exchanged(tf.convert_to_tensor(x))


def all_gather(x: Any, replication_factor: int, name: str | None = None) -> Any:
    """Every replica's `x`, in their order.

    Its gradient gives each replica the sum of what all replicas have for its part.

    Args:
        x: a tensor, or a list of tensors of any shapes and dtypes.
        replication_factor: the number of replicas the program runs as.
        name: for the op.

    Returns:
        `[replication_factor, *shape]` for each tensor: a tensor for a tensor, a list for a list.

    Raises:
        ValueError: when the program is built, if `replication_factor` is not the number of replicas.
    """
    replication_factor = checked_count("replication_factor", replication_factor)

    @tf.custom_gradient
    def gathered(*values: tf.Tensor) -> Any:
        specs = [tf.TensorSpec([replication_factor, *value.shape], value.dtype) for value in values]

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            return [_own_part(part) for part in upstream]

        return marker("ipu.all_gather", values, specs, replication_factor=replication_factor), gradient

    with tf.name_scope(name or "all_gather"):
        if isinstance(x, (list, tuple)):
            return list(gathered(*[tf.convert_to_tensor(value) for value in x]))
        [result] = gathered(tf.convert_to_tensor(x))
        return result


def _own_part(upstream: tf.Tensor) -> tf.Tensor:
    spec = tf.TensorSpec(upstream.shape, upstream.dtype)
    [total] = marker("ipu.all_reduce", [upstream], [spec], operation="ADD", group=None)
    [index] = marker("ipu.replica_index", [], [tf.TensorSpec([], tf.int32)])
    return total[index]


def _exchange(value: tf.Tensor, split: int, concat: int, replicas: int) -> tf.Tensor:
    shape = value.shape.as_list()
    if shape[split] % replicas:
        raise ValueError(
            f"all_to_all splits dimension {split} into {replicas} equal parts, one for each replica. "
            f"Received: a tensor of shape {tuple(shape)}."
        )
    shape[split] //= replicas
    shape[concat] *= replicas
    attributes = {"split": split % len(shape), "concat": concat % len(shape), "replication_factor": replicas}
    [result] = marker("ipu.all_to_all", [value], [tf.TensorSpec(shape, value.dtype)], **attributes)
    return result
