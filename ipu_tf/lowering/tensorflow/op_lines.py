"""Finds the user's source line of an op in a lowered graph, by its name in StableHLO.

stablehlo loc("while/PartitionedCall/Where") ─► op `Where` of the function called there ─► its Python stack ─► line
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from ipu_tf.device.op_locations import OpLocation
from ipu_tf.device.source_lines import SourceLine, user_lines
from ipu_tf.lowering.tensorflow import tf_graphs


def location_of(operation: tf.Operation) -> OpLocation:
    """Returns the source lines that created a TensorFlow op."""
    if operation.traceback is None:  # it was copied from another graph
        return location_of_name(operation.graph, operation.name)
    return OpLocation(operation.name, operation.type, _lines(operation))


def location_of_value(tensor: tf.Tensor) -> OpLocation:
    """Returns the source lines of the op that computes a tensor; results of calls are followed into functions."""
    operation = tensor.op
    graphs = tf_graphs.called_graphs(operation)
    if operation.type == "Identity":
        return location_of_value(operation.inputs[0])
    if "PartitionedCall" in operation.type and graphs:
        return location_of_value(graphs[0].outputs[tensor.value_index])
    return location_of(operation)


def location_of_name(graph: Any, name: str) -> OpLocation:
    """Returns the source lines of the op that tf2xla calls `name` in a program lowered from a graph.

    Args:
        graph: the `FuncGraph`.
        name: the op's name; names of inlined calls come before it, separated by slashes.
    """
    found = _found(graph, name) or _by_end(graph, name)
    if not found and "/" in name:  # a marker that stands for an op has a name of its own below the op's
        return dataclasses.replace(location_of_name(graph, name.rpartition("/")[0]), name=name)
    lines = next(filter(None, map(_lines, found)), ())
    return OpLocation(name, found[0].type if found else "", lines)


def location_in_function(graph: Any, function: str, name: str) -> OpLocation:
    """Returns the source lines of an op in a function that a graph calls.

    Args:
        graph: the `FuncGraph`.
        function: the function's name, as TensorFlow has it.
        name: the op's name in the function.
    """
    for traced in _origins(graph):
        known = tf_graphs.known_functions(traced)
        # A function that was rewritten has a longer name than the user's.
        fitting = [each for each in known if f"{function}_".startswith(f"{each}_")]
        if fitting:
            return location_of_name(known[max(fitting, key=len)], name)
    return location_of_name(graph, name)


def _lines(operation: tf.Operation) -> tuple[SourceLine, ...]:
    # Ops that were imported from a graph's definition have no stack.
    return user_lines((frame.filename, frame.lineno, frame.name) for frame in operation.traceback or ())


def _found(graph: Any, name: str) -> list[tf.Operation]:
    """Returns the op of this name, then the calls around it, innermost first; empty if there is none."""
    origin = tf_graphs.origin_of(graph)
    found = _found(origin, name) if origin is not None else []
    if found:
        return found
    operation = tf_graphs.operation_named(graph, name)
    if operation is not None:
        return [operation]
    parts = name.split("/")
    for size in range(len(parts) - 1, 0, -1):
        caller = tf_graphs.operation_named(graph, "/".join(parts[:size]))
        for called in tf_graphs.called_graphs(caller) if caller is not None else ():
            # Ops in the functions of loops and branches have the name of the loop before their own.
            found = _found(called, "/".join(parts[size:])) or _found(called, name)
            if found:
                return [*found, caller]
    return []


def _by_end(graph: Any, name: str) -> list[tf.Operation]:
    """Finds the op, in any function, whose name is the longest suffix of this one."""
    graphs = [each for traced in _origins(graph) for each in (traced, *tf_graphs.known_functions(traced).values())]
    ends = ["/".join(name.split("/")[start:]) for start in range(name.count("/") + 1)]
    found = (tf_graphs.operation_named(each, end) for end in ends for each in graphs)
    return [operation for operation in found if operation is not None][:1]


def _origins(graph: Any) -> list[Any]:
    """Returns the graphs that a graph was copied from, the oldest first, and itself."""
    origin = tf_graphs.origin_of(graph)
    return [graph] if origin is None else [*_origins(origin), graph]
