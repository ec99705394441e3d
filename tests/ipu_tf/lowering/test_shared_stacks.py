"""Ops of a program share the Python stack of the user's line; ops that the host runs keep stacks of their own."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf.lowering.tensorflow import tf_private
from ipu_tf.lowering.tensorflow.tf_stacks import shared_stacks

VECTOR = tf.TensorSpec((4,))
#: A graph is dismantled with its function.
_kept: list[Any] = []


def _ops(function: Callable[..., Any], autograph: bool = False) -> list[tf.Operation]:
    traced = tf_private.concrete_function(tf.function(function, autograph=autograph), VECTOR)
    _kept.append(traced)
    return [operation for operation in traced.graph.get_operations() if operation.type != "Placeholder"]


def _line(operation: tf.Operation, place: int = -1) -> tuple[str, str]:
    """The file and the text of a line of an op's stack, the last one by default."""
    frame = operation.traceback[place]
    return frame.filename, linecache.getline(frame.filename, frame.lineno).strip()


def test_ops_of_one_line_share_a_stack_that_ends_there() -> None:
    layer = keras.layers.LayerNormalization()
    layer.build((1, 4))

    def function(x: tf.Tensor) -> tf.Tensor:
        normal = layer(x[None])
        return tf.nn.softmax(normal) + 1.0

    operations = _ops(function)
    lines = {_line(operation) for operation in operations}
    assert {(__file__, "normal = layer(x[None])"), (__file__, "return tf.nn.softmax(normal) + 1.0")} <= lines
    normalization = [operation for operation in operations if _line(operation)[1].startswith("normal =")]
    assert len(normalization) > 10
    stacks = [operation.traceback for operation in normalization]
    assert len(set(map(id, stacks))) == 2  # of `x[None]`, and of the call


def test_each_frame_has_its_own() -> None:
    def inner(x: tf.Tensor, scale: float) -> tf.Tensor:
        return x * scale

    def function(x: tf.Tensor) -> tf.Tensor:
        first = inner(x, 2.0)
        return inner(first, 3.0)

    products = [operation for operation in _ops(function) if operation.type == "Mul"]
    assert [_line(op)[1] for op in products] == ["return x * scale"] * 2
    callers = [_line(operation, -2)[1] for operation in products]
    assert callers == ["first = inner(x, 2.0)", "return inner(first, 3.0)"]


def test_a_line_in_a_loop_is_found() -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        for _ in range(3):
            x = x * 2.0
        return x

    products = [operation for operation in _ops(function) if operation.type == "Mul"]
    assert [_line(op) for op in products] == [(__file__, "x = x * 2.0")] * 3


def test_functions_that_autograph_rewrites_keep_whole_stacks() -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(x)  # called by AutoGraph, whose frames TensorFlow leaves out

    [softmax] = [operation for operation in _ops(function, autograph=True) if operation.type == "Softmax"]
    found = [(frame.filename, frame.name) for frame in softmax.traceback]
    assert (__file__, "function") in found[:-1]


def test_host_functions_keep_whole_stacks() -> None:
    @tf.function(autograph=False)
    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(x)

    with shared_stacks():
        pass  # installs the patch
    [softmax] = [op for op in function.get_concrete_function(VECTOR).graph.get_operations() if op.type == "Softmax"]
    names = [frame.name for frame in softmax.traceback]
    assert names[names.index("function") :] != ["function"]
    assert test_host_functions_keep_whole_stacks.__name__ in names
