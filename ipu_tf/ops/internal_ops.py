"""Small ops of Graphcore's own: layouts of tensors, printing."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from ipu_tf.ignored_arguments import record_ignored
from ipu_tf.lowering import tf_private
from ipu_tf.lowering.host_calls import print_marker


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


def print_tensor(input: Any, name: str = "") -> tf.Operation | None:
    """Prints a tensor to the standard error of the host, each time the program comes by.

    Args:
        input: the tensor.
        name: printed before the value; by default the op's own name.

    Returns:
        The op that prints, in a graph; within a program it runs whether or not anything depends on it. None in eager
        mode, where it has printed.
    """
    if tf_private.executing_eagerly():
        tf.print(f"{name}:" if name else "print_tensor:", input, summarize=-1, output_stream=sys.stderr)
        return None
    return print_marker(tf.convert_to_tensor(input), name)
