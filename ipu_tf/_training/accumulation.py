"""Gradient accumulation inside of a training loop: sums over micro-batches, one weight update for all of them.

    iteration      0      1      2      3      4     ...      with 3 micro-batches an update
    accumulator    g0     +g1    +g2    g3     +g4
    update                       *

The accumulators live as long as the loop; each update starts them anew.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ipu_tf._arguments.counts import checked_count, checked_iterations
from ipu_tf._state.numbers import next_number
from ipu_tf.device.memory.hidden_state import ACCUMULATOR, numbered_key
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from ipu_tf.lowering.stablehlo.needed_hidden_state import ACCUMULATE, UPDATE_DUE
from ipu_tf.lowering.tensorflow.markers import marker

Count = Any
"""A number of iterations: an `int`, or an `int32[]` tensor."""


def accumulated(
    value: Any, count: Count, method: Reduction = Reduction.SUM, dtype: tf.DType | None = None, name: str = ""
) -> tf.Tensor:
    """A value accumulated over the iterations of the innermost loop since the last update.

    Args:
        value: a tensor, or `tf.IndexedSlices`, of this iteration.
        count: iterations to an update: a number, or an `int32[]` tensor.
        method: how they are combined.
        dtype: of the accumulator and the result; that of `value` by default.
        name: of the weight whose gradient it is, for reports.
    """
    tensor = tf.convert_to_tensor(value)
    key = numbered_key(ACCUMULATOR, next_number(ACCUMULATOR), name)
    inputs, number = _counted(count)
    spec = tf.TensorSpec(tensor.shape, dtype or tensor.dtype)
    [result] = marker(ACCUMULATE, [tensor, *inputs], [spec], key=key, method=method.name, **number)
    return result


def update_due(count: Count) -> tf.Tensor:
    """Returns whether this iteration of the innermost loop is the last before an update, `bool[]`."""
    inputs, number = _counted(count)
    [due] = marker(UPDATE_DUE, inputs, [tf.TensorSpec([], tf.bool)], **number)
    return due


def on_update(count: Count, update: Callable[[], Any]) -> tf.Tensor:
    """Calls `update` in every `count`-th iteration of the innermost loop.

    Args:
        count: iterations to an update.
        update: changes variables; what it returns is dropped.

    Returns:
        A tensor, `int32[]`, that there is after the update.
    """

    def updated() -> tf.Tensor:
        result = update()
        operations = [leaf for leaf in tf.nest.flatten(result) if isinstance(leaf, (tf.Operation, tf.Tensor))]
        with tf.control_dependencies(operations):
            return tf.constant(1)

    return tf.cond(update_due(count), updated, lambda: tf.constant(0))


_local = threading.local()


@contextlib.contextmanager
def accumulation_scope(count: Count) -> Iterator[None]:
    """Sets, in this thread, the accumulation count of the loop that is traced within the scope."""
    outer = current_accumulation_count()
    _local.count = count
    try:
        yield
    finally:
        _local.count = outer


def current_accumulation_count() -> Count | None:
    """Returns the accumulation count of the loop that is traced, as `accumulation_scope` set it."""
    return getattr(_local, "count", None)


def _counted(count: Count) -> tuple[list[tf.Tensor], dict[str, int]]:
    """A number of iterations as a marker's inputs and attributes."""
    constant = tf.get_static_value(count) if isinstance(count, tf.Tensor) else count
    if constant is not None:
        return [], {"count": checked_count("gradient_accumulation_count", constant, least=0)}
    return [checked_iterations("gradient_accumulation_count", count)], {}
