"""Lowers a concrete TensorFlow function to a StableHLO module."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.device.paused_collection import paused_collection
from ipu_tf.lowering.jax.jax_private import MLIRError
from ipu_tf.lowering.stablehlo.errors import LoweringError
from ipu_tf.lowering.stablehlo.module import Module, parse
from ipu_tf.lowering.tensorflow import tf_private, tf_values
from ipu_tf.lowering.tensorflow.graph_checks import with_checks
from ipu_tf.lowering.tensorflow.graph_pruning import part_of
from ipu_tf.lowering.tensorflow.op_lines import location_of_name
from ipu_tf.lowering.tensorflow.refusal import function_name, resource_refusal, shape_refusal, tensorflow_refusal
from ipu_tf.lowering.tensorflow.stochastic_rounding_scopes import rounding_overrides

HOST_ONLY_DTYPES = (tf.string, tf.variant, tf.resource)


@dataclasses.dataclass(frozen=True)
class Lowered:
    """Lowered concrete function: StableHLO module with its inputs and captures.

    Attributes:
        module: the StableHLO module. Its parameters are the function's tensor inputs, then its captures; its results
            are the function's tensor outputs, then the new values of the variables it changes.
        inputs: specs of the tensor inputs.
        captures: what each captured parameter stands for: a `tf.Variable`, or a tensor.
        outputs: number of tensor outputs.
    """

    module: Module
    inputs: tuple[tf.TensorSpec, ...]
    captures: tuple[Any, ...]
    outputs: int


@paused_collection()
def lower(function: Any, variables: Sequence[tf.Variable] = ()) -> Lowered:
    """Lowers a `tf.types.experimental.ConcreteFunction`.

    Args:
        function: the concrete function.
        variables: variables whose handles the function may capture without TensorFlow having noted it.

    Raises:
        UnsupportedOpsError: listing every op that TensorFlow cannot compile.
        LoweringError: if TensorFlow cannot compile the function for another reason, with TensorFlow's own words.
    """
    author, function = function, checked_function(function, function_name(function))
    variables = (*variables, *author.graph.variables)
    captured = function.captured_inputs
    tensors = function.inputs[: len(function.inputs) - len(captured)]
    specs = tuple(_spec(tensor, function_name(function)) for tensor in tensors)
    try:
        with tf_values.eager_mode():
            bytecode = tf_private.stablehlo_bytecode(function, specs)
    except (tf.errors.OpError, ValueError) as error:
        raise tensorflow_refusal(function, str(error)) from error
    module = _parsed(bytecode, function)
    module = dataclasses.replace(
        module,
        rounding_overrides=lambda: rounding_overrides(author.graph),
        location_of=lambda name: location_of_name(function.graph, name),
    )
    pairs = zip(captured, function.inputs[len(tensors) :], strict=True)
    captures = tuple(_capture(outer, inner, function, variables) for outer, inner in pairs)
    lowered = Lowered(module, specs, captures, len([output for output in function.outputs if output is not None]))
    _check(lowered)
    return lowered


def _parsed(bytecode: bytes, function: Any) -> Module:
    try:
        return parse(bytecode)
    except (NotImplementedError, MLIRError) as error:
        raise shape_refusal(function, bytecode, error) from error


def _spec(tensor: tf.Tensor, name: str) -> tf.TensorSpec:
    if tensor.dtype in HOST_ONLY_DTYPES:
        raise LoweringError(
            f"The emulated IPU computes with numbers and booleans. Received: an argument of dtype "
            f"{tensor.dtype.name} for `{name}`. Convert it to numbers on the host."
        )
    if not tensor.shape.is_fully_defined():
        raise LoweringError(
            f"An argument of `{name}` has the shape {tensor.shape}, which is not fully defined. The device needs "
            "fixed shapes: with tf.data use batch(..., drop_remainder=True), or give the tensor a static shape."
        )
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _capture(tensor: tf.Tensor, inner: tf.Tensor, function: Any, variables: Sequence[tf.Variable]) -> Any:
    if tensor.dtype != tf.resource:
        return tensor
    for variable in (*variables, *function.graph.variables):
        if variable.handle is tensor:
            return variable
    # TensorFlow notes the variables that a function reads, not those that it only writes.
    unnoted = tf_values.variable_of(tensor)
    if unnoted is not None:
        return unnoted
    raise resource_refusal(function_name(function), tensor, inner)


def _check(lowered: Lowered) -> None:
    module = lowered.module
    parameters = len(lowered.inputs) + len(lowered.captures)
    if len(module.parameters) != parameters or len(module.results) != lowered.outputs + len(module.aliases):
        raise LoweringError(
            f"TensorFlow lowered `{module.name}` to {len(module.parameters)} parameters and {len(module.results)} "
            f"results, but the function has {parameters} inputs and captures, {lowered.outputs} outputs and "
            f"{len(module.aliases)} changed variables."
        )


def checked_function(function: Any, name: str) -> Any:
    """Returns a concrete function with its assertions as markers; the function itself if it has none."""
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
