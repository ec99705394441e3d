"""Reduce-scatter between replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf._arguments.averages import check_averaged
from ipu_tf._arguments.counts import checked_count
from ipu_tf.device.program.collectives import OPERATIONS
from ipu_tf.lowering.tensorflow.markers import marker

__all__ = ["reduce_scatter"]

_PREFIX = "COLLECTIVE_OP_"


def reduce_scatter(x: Any, replication_factor: int, op: str = "COLLECTIVE_OP_ADD", name: str | None = None) -> Any:
    """Combines every replica's `x`; replica `i` gets the `i`-th part.

    Args:
        x: a tensor `[n]`, or a list of such; filled up with zeros to a multiple of the replicas.
        replication_factor: the number of replicas the program runs as.
        op: COLLECTIVE_OP_ followed by ADD, MUL, MIN, MAX, LOGICAL_AND, LOGICAL_OR, SQUARE_ADD, MEAN or LOCAL (each
            replica keeps the part of its own `x`).
        name: for the op.

    Returns:
        `[ceil(n / replication_factor)]` for each tensor: a tensor for a tensor, a list for a list.

    Raises:
        ValueError: for an unknown `op`, a tensor that is not of rank 1; when the program is built, if
            `replication_factor` is not the number of replicas.
        TypeError: for a mean of whole numbers.
    """
    replication_factor = checked_count("replication_factor", replication_factor)
    tensors = (
        [tf.convert_to_tensor(value) for value in x] if isinstance(x, (list, tuple)) else [tf.convert_to_tensor(x)]
    )
    operation = collective_operation(op, *(tensor.dtype for tensor in tensors))
    for tensor in tensors:
        if tensor.shape.rank != 1:
            raise ValueError(f"reduce_scatter wants tensors of rank 1. Received: shape {tensor.shape}.")
    if not tensors:
        return []
    specs = [tf.TensorSpec([-(-tensor.shape[0] // replication_factor)], tensor.dtype) for tensor in tensors]
    with tf.name_scope(name or "reduce_scatter"):
        attributes = {"operation": operation, "replication_factor": replication_factor}
        results = marker("ipu.reduce_scatter", tensors, specs, **attributes)
    return results if isinstance(x, (list, tuple)) else results[0]


def collective_operation(op: str, *dtypes: tf.DType) -> str:
    """The operation behind a name such as `COLLECTIVE_OP_ADD`, for tensors of some dtypes.

    Raises:
        ValueError: for an unknown name.
        TypeError: for a mean of whole numbers.

    Example:
        >>> collective_operation("COLLECTIVE_OP_ADD", tf.int32)
        'ADD'
    """
    operation = op.removeprefix(_PREFIX)
    if not op.startswith(_PREFIX) or operation not in OPERATIONS:
        known = ", ".join(_PREFIX + name for name in OPERATIONS)
        raise ValueError(f"`op` must be one of {known}. Received: {op!r}.")
    for dtype in dtypes if operation == "MEAN" else ():
        check_averaged(op, dtype)
    return operation
