"""Builds the errors raised if TensorFlow cannot lower a function, as with `tf.print`; with each op's source line."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from ipu_tf.device.op_locations import OpLocation, described
from ipu_tf.device.source_lines import indented
from ipu_tf.lowering.jax.jax_private import MLIRError, parse_module
from ipu_tf.lowering.stablehlo.advice import CONSTANT, FIXED_SHAPES, advice_for
from ipu_tf.lowering.stablehlo.errors import LoweringError, UnsupportedOp, UnsupportedOpsError
from ipu_tf.lowering.stablehlo.module import functions_of, walk
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.stablehlo.unknown_types import makes_unknown_type
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private, tf_values
from ipu_tf.lowering.tensorflow.op_lines import location_in_function, location_of, location_of_name

_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_INPUTS = ("Placeholder", "PlaceholderWithDefault", "_Arg", "_Retval")
_NO_KERNEL = re.compile(r"(\w+) \(No registered '\w+' OpKernel for XLA\w* devices.*?\{\{node ([^}]*)\}\}", re.DOTALL)
_IN_FUNCTION = re.compile(r"\{\{function_node ([^}]*)\}\}\{\{node ([^}]*)\}\}")
_NAMED = re.compile(r"node `([^`]*)`|\{\{node ([^}]*)\}\}|fused\[\"([^\"]*)\"")
_STACK = re.compile(r"\n*(?:Stack trace for op definition|The op is created at): *\n(?:File .*\n)+")


def tensorflow_refusal(function: Any, message: str) -> Exception:
    """Builds the error for a concrete function that tf2xla cannot lower.

    Args:
        function: the concrete function.
        message: what TensorFlow said.
    """
    found = _without_kernel(function.graph)
    for kind, name in _NO_KERNEL.findall(message):
        found[kind] = found.get(kind) or [location_of_name(function.graph, name)]
    if found:
        reason = "TensorFlow cannot compile it"
        ops = [UnsupportedOp(kind, reason, tuple(locations), advice_for(kind)) for kind, locations in found.items()]
        return UnsupportedOpsError(function_name(function), tuple(ops))
    advice = CONSTANT if "must be a compile-time constant" in message else ""
    return LoweringError(
        f"TensorFlow could not lower `{function_name(function)}` for the device. Nothing was run. It says: "
        f"{_STACK.sub(' ', message)}" + _with_lines(_named(function.graph, message), advice)
    )


def shape_refusal(function: Any, bytecode: bytes, error: BaseException) -> LoweringError:
    """Builds the error for a module with tensors of unknown shape or dtype; names the ops that made them.

    Args:
        function: the concrete function.
        bytecode: the module.
        error: what reading it raised.
    """
    locations = _of_unknown_type(function.graph, bytecode) or _of_dynamic_shape(function.graph)
    locations = locations or _named(function.graph, str(error))
    said = "TensorFlow gave a module that StableHLO cannot read." if isinstance(error, MLIRError) else str(error)
    return LoweringError(
        f"`{function_name(function)}` has values whose shape depends on data, or of a type the device has not: "
        f"{said} Nothing was run." + _with_lines(locations, FIXED_SHAPES)
    )


def unknown_shape_refusal(target: str, tensor: tf.Tensor) -> ValueError:
    """Builds the error for an op of the device that is given a tensor of unknown shape; names what made the shape.

    It is a plain ValueError: AutoGraph, which is tracing, would make another error of a class that it does not know.

    Args:
        target: the device's op, as StableHLO spells it.
        tensor: what it is given.
    """
    seen, waiting = {id(tensor.op)}, [tensor]
    while waiting:
        tensor = waiting.pop(0)
        unknown = [each for each in tensor.op.inputs if not each.shape.is_fully_defined()]
        if not unknown:
            break
        waiting += [each for each in unknown if id(each.op) not in seen]
        seen.update(id(each.op) for each in unknown)
    return ValueError(
        f"`{target}` needs tensors of fixed shape. Received: one whose shape depends on data. Nothing was run."
        + _with_lines((location_of(tensor.op),), FIXED_SHAPES)
    )


def resource_refusal(name: str, outer: tf.Tensor, inner: tf.Tensor) -> LoweringError:
    """Builds the error for a function that uses a resource other than a variable.

    Args:
        name: the function's.
        outer: the resource.
        inner: what stands for it in the function's graph.
    """
    return LoweringError(
        f"`{name}` uses a resource that is not a variable ({outer}). Only variables live on the device: take dataset "
        "elements with `next(iterator)` of an iterator made inside the strategy's scope, and look-up tables on the "
        "host." + _with_lines(tuple(map(location_of, _users(inner))), "")
    )


def check_variables(name: str, handles: Iterable[tuple[tf.Tensor, tf.Tensor]]) -> None:
    """Checks that the resources that a traced function captures are variables.

    Args:
        name: the function's.
        handles: each resource, and what stands for it in the function's graph.

    Raises:
        LoweringError: for one that is not, with the lines that use it.
    """
    for outer, inner in handles:
        if not tf_values.is_variable(inner):
            raise resource_refusal(name, outer, inner)


def _users(tensor: tf.Tensor) -> list[tf.Operation]:
    """Returns the ops that use a tensor, also within functions that it is passed to."""
    found = []
    for operation in tensor.consumers():
        index = next(number for number, given in enumerate(operation.inputs) if given is tensor)
        index -= operation.type in _BRANCHES  # their first input says which branch is taken
        inside = [each.inputs[index] for each in tf_graphs.called_graphs(operation)]
        found += [user for inner in inside for user in _users(inner)] or [operation]
    return found


def function_name(function: Any) -> str:
    """Returns a concrete function's name in the user's program."""
    name = function.name.decode() if isinstance(function.name, bytes) else function.name
    return re.sub(r"^__(inference|forward)_|_\d+$", "", name)


def _with_lines(locations: tuple[OpLocation, ...], advice: str) -> str:
    lines = f"\n{indented(described(locations), '  ')}" if locations else ""
    return lines + (advice and f"\n{advice}")


def _without_kernel(graph: Any) -> dict[str, list[OpLocation]]:
    """Finds the ops without a tf2xla kernel, by type. TensorFlow itself stops at the first."""
    found: dict[str, list[OpLocation]] = collections.defaultdict(list)
    for function, node in _nodes(graph.as_graph_def()):
        if not tf_private.compiles(node.op) and node.op not in _INPUTS:
            location = (
                location_in_function(graph, function, node.name) if function else location_of_name(graph, node.name)
            )
            found[node.op].append(location)
    return found


def _nodes(graph_def: Any) -> Iterator[tuple[str, Any]]:
    """Yields the nodes of a graph and of its functions, each with the function's name, if any."""
    yield from (("", node) for node in graph_def.node)
    for function in graph_def.library.function:
        yield from ((function.signature.name, node) for node in function.node_def)


def _named(graph: Any, message: str) -> tuple[OpLocation, ...]:
    """Finds the ops that a message of TensorFlow names, each line once."""
    locations = [location_in_function(graph, *pair) for pair in _IN_FUNCTION.findall(message)]
    if not locations:
        names = (next(filter(None, groups)) for groups in _NAMED.findall(message))
        locations = [location_of_name(graph, name) for name in dict.fromkeys(names)]
    return tuple({location.lines: location for location in locations}.values())


def _of_unknown_type(graph: Any, bytecode: bytes) -> tuple[OpLocation, ...]:
    """Finds the ops of a module with results of unknown shape or dtype; empty if MLIR cannot parse it."""
    try:
        mlir = parse_module(bytecode)
    except MLIRError:
        return ()
    blocks = functions_of(mlir)
    names = dict.fromkeys(Op(each).origin for each in walk(blocks["main"], blocks) if makes_unknown_type(each))
    return tuple(location_of_name(graph, name) for name in names)


def _of_dynamic_shape(graph: Any) -> tuple[OpLocation, ...]:
    """Finds the ops whose result shape is unknown though their operands' shapes are known."""
    graphs = (graph, *tf_graphs.known_functions(graph).values())
    return tuple(
        location_of_name(each, operation.name)
        for each in graphs
        for operation in each.get_operations()
        if operation.type not in _INPUTS and _unknown(operation.outputs) and not _unknown(operation.inputs)
        if not tf_graphs.called_graphs(operation)
    )


def _unknown(tensors: Any) -> bool:
    numbers = (tensor for tensor in tensors if tensor.dtype not in (tf.resource, tf.variant))
    return any(not tensor.shape.is_fully_defined() for tensor in numbers)
