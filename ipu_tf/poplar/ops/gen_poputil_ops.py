"""Small ops inside programs by the names of Graphcore's raw ops."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as tf

from ipu_tf.poplar.refusal import refuse_others


def ipu_replication_normalise(input: Any, name: str | None = None) -> tf.Tensor:  # noqa: A002 - the raw op's name
    """A tensor divided by the number of replicas of the program.

    Args:
        input: a tensor of floats.
        name: for the op.
    """
    tensor = tf.convert_to_tensor(input)
    cross_replica = importlib.import_module("ipu_tf.ops.cross_replica_ops")
    return tf.divide(tensor, cross_replica.cross_replica_sum(tf.ones([], tensor.dtype)), name=name)


def ipu_print_tensor(input: Any, tensor_name: str = "", name: str | None = None) -> Any:  # noqa: A002
    """`ipu.internal_ops.print_tensor`."""
    return importlib.import_module("ipu_tf.ops.internal_ops").print_tensor(input, tensor_name or name or "")


__getattr__ = refuse_others(
    __name__,
    "this raw op of Graphcore's plugin is not emulated. Use ipu.internal_ops, or an optimizer that accumulates "
    "gradients from ipu.optimizers.",
)
