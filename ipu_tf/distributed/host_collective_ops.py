"""Collectives between hosts (allgather, allreduce, broadcast): with one process, each returns its own value."""

from __future__ import annotations

import tensorflow as tf

from ipu_tf.popdist.instances import require_one_instance


def allgather(value: tf.Tensor, tensor_name: str | None = None) -> tf.Tensor:
    """The values that all processes have, along a new first dimension: `[1, *shape]`.

    Args:
        value: this process's value.
        tensor_name: what the processes call the value; without effect with one process.

    Raises:
        EmulationError: if the environment says that there are other processes.

    Example:
        >>> import tensorflow as tf
        >>> allgather(tf.constant([1, 2])).numpy().tolist()
        [[1, 2]]
    """
    require_one_instance()
    return tf.expand_dims(value, 0)


def allreduce(value: tf.Tensor, reduce_op: tf.distribute.ReduceOp, tensor_name: str | None = None) -> tf.Tensor:
    """The sum or mean of the values that all processes have.

    Args:
        value: this process's value.
        reduce_op: `tf.distribute.ReduceOp.SUM` or `MEAN`.
        tensor_name: what the processes call the value; without effect with one process.

    Raises:
        EmulationError: if the environment says that there are other processes.
        ValueError: for another reduction.
    """
    require_one_instance()
    if reduce_op not in (tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN):
        raise ValueError(f"Unsupported reduce op: {reduce_op}")
    return tf.identity(value)


def broadcast(value: tf.Tensor, root_rank: int = 0, tensor_name: str | None = None) -> tf.Tensor:
    """The value that one process has.

    Args:
        value: this process's value.
        root_rank: whose value: 0, the only process.
        tensor_name: what the processes call the value; without effect with one process.

    Raises:
        EmulationError: if the environment says that there are other processes.
        ValueError: for a process that there is not.
    """
    require_one_instance()
    if root_rank != 0:
        raise ValueError(f"`root_rank` must be 0, the only process. Received: {root_rank}.")
    return tf.identity(value)
