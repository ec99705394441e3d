"""Raw ops for gradient accumulation, replica normalisation and printing, under the names of Graphcore's plugin."""

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


def ipu_stateful_gradient_accumulate(
    input: Any,  # noqa: A002 - the raw op's name
    num_mini_batches: int,
    verify_usage: bool = True,
    name: str | None = None,
) -> tf.Tensor:
    """The sum of a tensor over the iterations of the innermost loop since the last update; zeros before it is complete.

    Args:
        input: this iteration's gradient.
        num_mini_batches: iterations to an update. It divides the iterations of the loop.
        verify_usage: Graphcore's check that an optimizer of SGD or Momentum uses the result; there is none here.
        name: for the ops.
    """
    _emulation().record_ignored("ipu_stateful_gradient_accumulate.verify_usage", verify_usage, "nothing is checked")
    with tf.name_scope(name or "IpuStatefulGradientAccumulate"):
        total, due = _accumulated(input, num_mini_batches)
        return tf.where(due, total, tf.zeros_like(total))


def ipu_stateful_gradient_accumulate_with_momentum(
    accum: Any, grad: Any, momentum: Any, num_mini_batches: int, name: str | None = None
) -> tf.Tensor:
    """Momentum over sums of gradients: with each update `accum = momentum * accum + sum`.

    Args:
        accum: a variable's handle.
        grad: this iteration's gradient.
        momentum: what the variable's value before is multiplied by.
        num_mini_batches: iterations of the innermost loop to an update. It divides the iterations of the loop.
        name: for the ops.

    Returns:
        The variable's new value in the iteration that updates it, zeros in the others.
    """
    with tf.name_scope(name or "IpuStatefulGradientAccumulateWithMomentum"):
        total, due = _accumulated(grad, num_mini_batches)
        before = tf.raw_ops.ReadVariableOp(resource=accum, dtype=total.dtype)
        after = tf.where(due, tf.cast(momentum, total.dtype) * before + total, before)
        write = tf.raw_ops.AssignVariableOp(resource=accum, value=after)
        # In a graph of TensorFlow 1 nothing else would have the write done.
        with tf.control_dependencies([write] if write is not None else []):
            return tf.where(due, after, tf.zeros_like(after))


def _accumulated(value: Any, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The sum so far, and whether it is complete."""
    accumulation = importlib.import_module("ipu_tf._training.accumulation")
    return accumulation.accumulated(value, count), accumulation.update_due(count)


def _emulation() -> Any:
    # Only when it is called: programs import this module for other names too.
    return importlib.import_module("ipu_tf.emulation")


__getattr__ = refuse_others(
    __name__,
    "this raw op of Graphcore's plugin is not emulated. Use ipu.internal_ops, or an optimizer that accumulates "
    "gradients from ipu.optimizers.",
)
