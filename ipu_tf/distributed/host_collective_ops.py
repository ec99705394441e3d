"""Collectives between the hosts of several instances: allgather, allreduce, broadcast.

    instance 0   allreduce(x) ─┐
                               ├─ matched by name, in any order ─► the same result in all
    instance 1   allreduce(x) ─┘

Values go through JAX's coordination service, each to every instance: they are for metrics and initial values, not for
gradients, which programs sum.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.device.instances.group import InstanceError, InstanceGroup
from ipu_tf.device.instances.joined import join

_LAYOUTS = "Tensor layouts did not match on all instances"
_SEPARATOR = b"\n"
_COUNT = 8
"""Bytes of a number of rows."""


def allgather(value: tf.Tensor, tensor_name: str | None = None) -> tf.Tensor:
    """The values that all instances have, along a new first dimension: `[instances, *shape]`.

    Args:
        value: this instance's value: numbers or booleans, of the same shape and dtype in all instances.
        tensor_name: what the instances call the value; the tensor's name by default, in eager mode one name for all.

    Raises:
        tf.errors.UnknownError: if shapes or dtypes differ, an instance ended, or it does not come within
            `IPU_TF_INSTANCE_TIMEOUT` seconds.

    Example:
        >>> import tensorflow as tf
        >>> allgather(tf.constant([1, 2])).numpy().tolist()
        [[1, 2]]
    """
    value = tf.convert_to_tensor(value)
    return _collective("AllGather", value, tensor_name, lambda values: np.stack(values), (None, *value.shape))


def allreduce(value: tf.Tensor, reduce_op: tf.distribute.ReduceOp, tensor_name: str | None = None) -> tf.Tensor:
    """The sum or mean of the values that all instances have.

    Sums are in the order of the instances: the same to the last bit in all. 16-bit numbers are summed in 32 bits.

    Args:
        value: this instance's value; see `allgather`.
        reduce_op: `tf.distribute.ReduceOp.SUM` or `MEAN`.
        tensor_name: as for `allgather`.

    Raises:
        ValueError: for another reduction.
        tf.errors.UnknownError: as for `allgather`.
    """
    value = tf.convert_to_tensor(value)
    if reduce_op not in (tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN):
        raise ValueError(f"Unsupported reduce op: {reduce_op}")
    mean = reduce_op is tf.distribute.ReduceOp.MEAN
    return _collective("AllReduce", value, tensor_name, functools.partial(_reduced, mean=mean), value.shape)


all_reduce = allreduce


def broadcast(value: tf.Tensor, root_rank: int = 0, tensor_name: str | None = None) -> tf.Tensor:
    """The value that one instance has.

    Args:
        value: this instance's value; see `allgather`.
        root_rank: the instance whose value all get.
        tensor_name: as for `allgather`.

    Raises:
        ValueError: for an instance that there is not.
        tf.errors.UnknownError: as for `allgather`.
    """
    value = tf.convert_to_tensor(value)
    others = join()
    count = 1 if others is None else others.place.count
    if not 0 <= root_rank < count:
        raise ValueError(f"`root_rank` must be an instance, 0 to {count - 1}. Received: {root_rank}.")
    own = others is None or others.place.index == root_rank
    return _collective("Broadcast", value, tensor_name, lambda values: values[root_rank], value.shape, gives=own)


def gather_rows(value: tf.Tensor, tensor_name: str | None = None) -> tf.Tensor:
    """The rows that all instances have, one after the other; each may have another number of them.

    Args:
        value: this instance's, `[rows, ...]`.
        tensor_name: as for `allgather`.

    Raises:
        ValueError: for a scalar.
        tf.errors.UnknownError: as for `allgather`, but for the first dimension.
    """
    value = tf.convert_to_tensor(value)
    if value.shape.rank == 0:
        raise ValueError(f"A value whose rows are gathered must have a first dimension. Received: {value}.")
    return _collective("Rows", value, tensor_name, np.concatenate, (None, *value.shape[1:]), rows_differ=True)


def _collective(
    kind: str,
    value: tf.Tensor,
    tensor_name: str | None,
    combine: Callable[[list[Any]], Any],
    shape: Any,
    gives: bool = True,
    rows_differ: bool = False,
) -> tf.Tensor:
    """Exchanges a value with the other instances and combines what all have, now or when the graph runs.

    Args:
        kind: of the collective.
        value: this instance's.
        tensor_name: what it is called; None for the default.
        combine: makes the result of the values of all instances, which are None where an instance gives none.
        shape: of the result.
        gives: whether this instance's value is among them.
        rows_differ: whether the first dimension may be another one in each instance.
    """
    others = join()
    eager = tf.executing_eagerly()
    name = f"PopDist{kind}_{tensor_name or _name_of(value, eager)}"

    def exchange(array: Any) -> Any:
        values = [array] if others is None else _values(others, name, np.asarray(array), gives, rows_differ)
        return np.asarray(combine(values), value.dtype.as_numpy_dtype)

    if eager:
        try:
            return tf.constant(exchange(value.numpy()), value.dtype)
        except (InstanceError, _LayoutError) as error:
            raise tf.errors.UnknownError(None, None, str(error)) from error
    with tf.device("/device:CPU:0"):
        # Not stateful: TensorFlow would run them one after the other, and their order differs between instances.
        op = re.sub(r"\W", "_", name)  # users name values as they like
        result = tf.numpy_function(exchange, [value], value.dtype, stateful=False, name=op)
        # The other instances wait for this one, also if it makes no use of the result.
        getattr(result.graph, "control_outputs", []).append(result.op)
    result.set_shape(tf.TensorShape(shape))
    return result


class _LayoutError(RuntimeError):
    """Raised if shapes or dtypes differ between the instances."""


def _values(
    others: InstanceGroup, name: str, array: np.ndarray[Any, Any], gives: bool, rows_differ: bool = False
) -> list[Any]:
    """Exchanges arrays; those of instances that give none are None.

    Raises:
        _LayoutError: if shapes or dtypes differ.
    """
    layout = f"{array.dtype.name}{['any', *array.shape[1:]] if rows_differ else list(array.shape)}"
    rows = len(array).to_bytes(_COUNT, "little") if rows_differ else b""  # of no columns, bytes do not tell them
    own = _SEPARATOR.join([layout.encode(), rows + array.tobytes() if gives else b""])
    found = [given.split(_SEPARATOR, 1) for given in others.exchange(name, own)]
    layouts = [given.decode() for given, _ in found]
    if set(layouts) != {layout}:
        each = ", ".join(f"instance {index} has {given}" for index, given in enumerate(layouts))
        raise _LayoutError(f"{_LAYOUTS} in {name}: {each}. Give values of one shape and dtype in all instances.")
    if rows_differ:
        return [_as_rows(data, array) for _, data in found]
    return [
        np.frombuffer(data, array.dtype).reshape(array.shape) if data or not array.size else None for _, data in found
    ]


def _as_rows(data: bytes, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns rows like those of an array, as many as their count says, which comes before them."""
    count = int.from_bytes(data[:_COUNT], "little")
    return np.frombuffer(data[_COUNT:], like.dtype).reshape((count, *like.shape[1:]))


def _reduced(values: list[Any], mean: bool) -> Any:
    narrow = values[0].dtype
    wide = np.float32 if narrow.itemsize == 2 and not np.issubdtype(narrow, np.integer) else narrow
    total = functools.reduce(np.add, (np.asarray(value, wide) for value in values))
    return total / len(values) if mean else total


def _name_of(value: tf.Tensor, eager: bool) -> str:
    """Returns the name of a tensor of a graph, as TensorFlow allows names of ops."""
    return "Default" if eager else re.sub(r"\W", "_", value.name)
