"""Retraces a concrete function with its assertions as markers, which tf2xla does not drop."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf.lowering.tensorflow import tf_private, tf_values
from ipu_tf.lowering.tensorflow.graph_checks import with_checks
from ipu_tf.lowering.tensorflow.graph_pruning import part_of


def checked_function(function: Any, name: str) -> Any:
    """A concrete function, under a name, with its assertions as markers; the function itself if it has none."""
    graph_def = function.graph.as_graph_def()
    if not with_checks(graph_def):
        return function
    captured = function.captured_inputs
    placeholders = [tensor.name for tensor in function.inputs]
    outputs = [tensor.name for tensor in function.outputs if tensor is not None]
    graph_def = part_of(graph_def, {node.name for node in graph_def.node} - _nodes_of(placeholders), alone=True)
    used = {text.split(":")[0] for node in graph_def.node for text in node.input}

    def again(*tensors: tf.Tensor) -> list[Any]:
        given = zip(placeholders, [*tensors, *captured], strict=True)
        fed = {name: tensor for name, tensor in given if name.removesuffix(":0") in used}
        return tf_private.import_graph(graph_def, fed, outputs, function.graph)

    again.__name__ = name
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in function.inputs[: len(placeholders) - len(captured)]]
    with tf_values.eager_mode(), tf_private.without_op_callbacks():
        tf_private.define_functions(function.graph, graph_def.library.function)
        return tf_private.concrete_function(tf.function(again, autograph=False, jit_compile=True), *specs)


def _nodes_of(tensors: list[str]) -> set[str]:
    return {name.split(":")[0] for name in tensors}
