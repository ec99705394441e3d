"""Graphcore's internal ops: remap, FIFO, iteration counter, print."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from ipu_tf._arguments.counts import checked_count
from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._state.numbers import next_number
from ipu_tf._training.accumulation import current_accumulation_count
from ipu_tf.device.memory.hidden_state import DELAY_LINE, numbered_key
from ipu_tf.lowering.stablehlo.needed_hidden_state import FIFO, ITERATION_COUNTER
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.host_calls import print_marker
from ipu_tf.lowering.tensorflow.markers import marker


def remap(x: Any, name: str | None = None) -> tf.Tensor:
    """A tensor laid out anew over the IPU's tiles: the same values.

    Args:
        x: the tensor.
        name: for the op.
    """
    record_ignored("remap.x", True, "the emulated device has no tiles")
    return tf.identity(x, name=name or "remap")


def remap_deduce(x: Any, name: str | None = None) -> tf.Tensor:
    """A tensor laid out over the IPU's tiles as the ops that use it like it: the same values.

    Args:
        x: the tensor.
        name: for the op.
    """
    record_ignored("remap_deduce.x", True, "the emulated device has no tiles")
    return tf.identity(x, name=name or "remap_deduce")


def fifo(x: Any, depth: int, offload: bool = False, name: str | None = None) -> tf.Tensor:
    """Delays a tensor by `depth` iterations of a loop, inside a program; zeros in the first iterations.

    Args:
        x: what goes into the line in this iteration, of static shape.
        depth: how many iterations it stays there; at least 1.
        offload: whether the line would lie in memory beside the IPU: recorded, and without effect.
        name: scope of the op's name.

    Returns:
        A tensor like `x`. An execution of the program begins with an empty line.

    Raises:
        ValueError: for a depth below 1; and when the program is built, for one in a `tf.function` that it calls more
            than once.
    """
    depth = checked_count("depth", depth)
    record_ignored("fifo.offload", offload or None, "the emulated device has one memory")
    x = tf.convert_to_tensor(x)
    with tf.name_scope(name or "fifo"):
        key = numbered_key(DELAY_LINE, next_number(DELAY_LINE))
        [result] = marker(FIFO, [x], [tf.TensorSpec(x.shape, x.dtype)], key=key, depth=int(depth))
    return result


def get_current_iteration_counter(name: str | None = None, **kwargs: Any) -> tf.Tensor:
    """The index of the present iteration of the innermost loop around it, from 0, inside a program: `int32[]`.

    In a pipeline it counts the micro-batches of an update.

    Args:
        name: scope of the op's name.
        **kwargs: of Graphcore's compiler (`lower_into_pipeline_stage`): recorded, and without effect.
    """
    for key, value in kwargs.items():
        record_ignored(f"get_current_iteration_counter.{key}", value, "a loop here always counts its own iterations")
    with tf.name_scope(name or "iteration_counter"):
        [index] = marker(ITERATION_COUNTER, [], [tf.TensorSpec([], tf.int32)])
        count = current_accumulation_count()
        return index if count is None else index % tf.cast(count, tf.int32)


def print_tensor(input: Any, name: str = "") -> tf.Operation | None:
    """Prints a tensor to the standard error of the host, each time the program comes by.

    Args:
        input: the tensor.
        name: printed before the value; by default the op's own name.

    Returns:
        The op that prints, in a graph; within a program it runs whether or not anything depends on it. None in eager
        mode, where it has printed.
    """
    if tf_values.executing_eagerly():
        tf.print(f"{name}:" if name else "print_tensor:", input, summarize=-1, output_stream=sys.stderr)
        return None
    return print_marker(tf.convert_to_tensor(input), name)
