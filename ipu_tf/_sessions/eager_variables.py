"""Eager ops on variables: the value is read, computed with on the device, and written back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "AssignAddVariableOp": lambda value, delta: tf.raw_ops.AddV2(x=value, y=delta),
    "AssignSubVariableOp": lambda value, delta: tf.raw_ops.Sub(x=value, y=delta),
}
_SCATTERS: dict[str, Callable[..., Any]] = {
    "ResourceScatterUpdate": tf.tensor_scatter_nd_update,
    "ResourceScatterAdd": tf.tensor_scatter_nd_add,
    "ResourceScatterSub": tf.tensor_scatter_nd_sub,
    "ResourceScatterMin": tf.tensor_scatter_nd_min,
    "ResourceScatterMax": tf.tensor_scatter_nd_max,
}
COMPUTING = frozenset({*_UPDATES, *_SCATTERS, "ResourceGather", "ResourceGatherNd"})
"""Ops on variables that compute; others only move values, or are about what is no number."""


def run(op_type: str, inputs: Sequence[tf.Tensor], attributes: dict[str, Any]) -> list[Any]:
    """Runs an op of `COMPUTING` by ops on values; returns its output tensors.

    Args:
        op_type: the op's type.
        inputs: its tensors, the variable's handle first.
        attributes: its attributes by name.
    """
    handle, *others = inputs
    dtype = tf.as_dtype(attributes["dtype"])
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
    if op_type == "ResourceGather":
        batch_dims = attributes["batch_dims"]
        axis = tf.constant(batch_dims)
        return [tf.raw_ops.GatherV2(params=value, indices=others[0], axis=axis, batch_dims=batch_dims)]
    if op_type == "ResourceGatherNd":
        return [tf.raw_ops.GatherNd(params=value, indices=others[0])]
    if op_type in _UPDATES:
        changed = _UPDATES[op_type](value, *others)
    else:
        indices, updates = others
        rows = tf.broadcast_to(updates, [*indices.shape, *value.shape[1:]])
        changed = _SCATTERS[op_type](value, indices[..., tf.newaxis], rows)
    tf.raw_ops.AssignVariableOp(resource=handle, value=changed)
    return []
