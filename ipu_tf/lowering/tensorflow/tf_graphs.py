"""Private API of TensorFlow for graphs, ops and their attributes that this package uses.

If TensorFlow moves one of these, `tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2 as _xla_data
from tensorflow.python.eager import record as _record
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import op_def_library as _op_def_library
from tensorflow.python.framework import op_def_registry as _op_def_registry
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import control_flow_util as _control_flow_util

from ipu_tf._state.context import context_value
from ipu_tf._state.numbers import next_number

_program: contextvars.ContextVar[Any] = contextvars.ContextVar("ipu_program_of_traces", default=None)
_tracing_for_device: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_tracing_for_device", default=False)


def ancestors(operation: tf.Operation) -> list[tf.Operation]:
    """Returns every operation that an operation depends on, itself included."""
    found: dict[tf.Operation, None] = {}
    waiting = [operation]
    while waiting:
        current = waiting.pop()
        if current not in found:
            found[current] = None
            waiting += [tensor.op for tensor in current.inputs] + list(current.control_inputs)
    return list(found)


def in_order(operation: tf.Operation) -> list[tf.Operation]:
    """Returns every operation that an operation depends on, itself last, each after what it depends on."""
    found = set(ancestors(operation))
    return [each for each in operation.graph.get_operations() if each in found]


def captured_from(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the outer tensor behind a captured tensor of function graphs or loops."""
    while True:
        captures = tensor.graph.captures if isinstance(tensor.graph, _func_graph.FuncGraph) else ()
        outer = next((outer for outer, inner in captures if inner is tensor), None)
        if outer is None and tensor.op.type in ("Enter", "Switch", "Identity"):
            outer = tensor.op.inputs[0]
        if outer is None:
            return tensor
        tensor = outer


def in_program(graph: tf.Graph) -> bool:
    """Returns whether a graph is, or lies in, one that is traced for the device (or for XLA otherwise)."""
    return bool(_control_flow_util.GraphOrParentsInXlaContext(graph))


def tracing_for_device() -> contextlib.AbstractContextManager[None]:
    """Context in which functions are traced for the device, not for TensorFlow's own XLA."""
    return context_value(_tracing_for_device, True)


def is_tracing_for_device() -> bool:
    """Returns whether functions are being traced for the device."""
    return _tracing_for_device.get()


def own_function_traces() -> contextlib.AbstractContextManager[None]:
    """Context in which functions that a program calls are traced for it alone.

    What they are traced with, such as whether gradients are summed over replicas, differs from program to program.
    """
    return context_value(_program, next_number("program of function traces"))


def function_traces_for(settings: tuple[Any, ...]) -> contextlib.AbstractContextManager[None]:
    """Context in which functions that a program calls are traced for all programs of the same settings.

    Within `own_function_traces`, or another such context, that one's remain.
    """
    return context_value(_program, settings if _program.get() is None else _program.get())


def function_traces_of() -> Any:
    """Returns what traces of functions are kept for: a number or settings, by the contexts above; None elsewhere."""
    return _program.get()


def is_traced_for_device(graph: tf.Graph) -> bool:
    """Returns whether a graph is, or lies in, one that is being traced for the device."""
    return _tracing_for_device.get() and in_program(graph)


def scope_attribute(name: str) -> Any:
    """Returns the `AttrValue` that the current scope sets on ops under a name; None if there is none."""
    return tf.compat.v1.get_default_graph()._attr_scope_map.get(name)


@contextlib.contextmanager
def attribute_scope(name: str, value: Any) -> Iterator[None]:
    """Context manager: ops made in the current graph get an `AttrValue` under a name."""
    with tf.compat.v1.get_default_graph()._attr_scope({name: value}):
        yield


def set_scope_attribute(name: str, value: Any) -> None:
    """Sets an `AttrValue` under a name on ops made in the current graph from now on."""
    tf.compat.v1.get_default_graph()._attr_scope_map[name] = value


def set_attribute(operation: tf.Operation, name: str, value: Any) -> None:
    """Sets an `AttrValue` of an op under a name."""
    operation._set_attr(name, value)


def string_map(serialized: bytes) -> dict[str, str]:
    """Parses a serialized `FrontendAttributes` message to strings by name."""
    message = _xla_data.FrontendAttributes()
    message.ParseFromString(serialized)
    return dict(message.map)


def serialized_map(strings: dict[str, str]) -> bytes:
    """Serializes strings by name to a `FrontendAttributes` message."""
    return bytes(_xla_data.FrontendAttributes(map=strings).SerializeToString())


def gradient_function(operation: tf.Operation) -> Callable[..., Any] | None:
    """Returns the gradient function of an op; None if it has none."""
    try:
        return _ops.get_gradient_function(operation)
    except LookupError:
        return None


def forget_custom_gradients(graph: tf.Graph, graph_def: tf.compat.v1.GraphDef) -> None:
    """Unregisters the custom gradients of a graph that is not differentiated any more.

    TensorFlow's registry keeps that for ever, and with it the graph, the graphs around it, and all that they use. The
    functions that the graph calls may be a user's, and be differentiated in another program; so may the ops that it
    has copies of: these keep the gradients themselves.

    Args:
        graph: that graph.
        graph_def: the same, with the functions that it calls: bodies of loops, branches.
    """
    called = known_functions(graph)
    _unregister_gradients(graph_def.node, origin_of(graph))
    for function in graph_def.library.function:
        _unregister_gradients(function.node_def, called.get(function.signature.name))


def _unregister_gradients(nodes: Iterable[Any], kept: tf.Graph | None) -> None:
    """Unregisters the custom gradients of nodes; ops of the same name and gradient in the graph `kept` keep theirs."""
    registered = _ops.gradient_registry._registry
    for node in nodes:
        name = _custom_gradient(node)
        if name in registered:
            operation = operation_named(kept, node.name) if kept is not None else None
            if operation is not None and _custom_gradient(operation.node_def) == name:
                set_gradient_function(operation, _ops.gradient_registry.lookup(name))
            del registered[name]


def _custom_gradient(node: Any) -> str:
    """Returns the name that a `tf.custom_gradient` gave the gradient of a node; empty for another node."""
    name = node.attr["_gradient_op_type"].s.decode() if node.op == "IdentityN" else ""
    return name if name.startswith("CustomGradient-") else ""


def set_gradient_function(operation: tf.Operation, function: Callable[..., Any]) -> None:
    """Sets the gradient function of an op, for `tf.gradients`."""
    operation._gradient_function = function


def with_gradient(tensors: Sequence[tf.Tensor], gradient: Callable[..., Any]) -> list[tf.Tensor]:
    """Returns tensors of the current graph, passed on by an op whose gradient is a function of one's own.

    Nothing is registered, as `tf.custom_gradient` does in graphs: the function goes with the op.

    Args:
        tensors: the tensors.
        gradient: takes the gradients of what is passed on, returns one for each tensor, or None.
    """
    with _record.stop_recording():
        passed = list(tf.identity_n(tensors))
    set_gradient_function(passed[0].op, lambda _, *upstream: gradient(*upstream))
    _record.record_operation("program of the device", passed, list(tensors), gradient)
    return passed


def captured_tensors(graph: tf.Graph) -> list[tf.Tensor]:
    """Returns the tensors that a function's graph has captured so far."""
    return list(getattr(graph, "external_captures", ()))


EagerTensor: type = _ops.EagerTensor


def creation_number(operation: tf.Operation) -> int:
    """Returns the creation number of an op, which grows within a graph."""
    return int(operation._id)


def control_flow_group(operation: tf.Operation) -> str | None:
    """Returns the name of the outermost TensorFlow 1 loop or branch around an op; None if there is none."""
    context = operation._get_control_flow_context()
    while context is not None and context.outer_context is not None:
        context = context.outer_context
    return None if context is None else str(context.name)


def graph_dict(graph: tf.Graph, name: str) -> dict[Any, Any]:
    """Returns the dictionary of a name that lives as long as a graph."""
    if not hasattr(graph, "_ipu_tf_kept"):
        graph._ipu_tf_kept = {}
    kept: dict[Any, Any] = graph._ipu_tf_kept.setdefault(name, {})
    return kept


def keep_with_functions(kind: str, name: str, value: Any) -> None:
    """Keeps an object as long as the function that is being traced, and those around it; see `graph_dict`.

    Also as long as the graph around them, unless they are functions of an eager program: the graph there is for ever.
    """
    graph = tf.compat.v1.get_default_graph()
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph_dict(graph, kind)[name] = value
        graph = outer
    if not tf.compat.v1.executing_eagerly_outside_functions():
        graph_dict(graph, kind)[name] = value


def set_origin(graph: tf.Graph, origin: tf.Graph | None) -> None:
    """Records from which graph the ops of a graph were copied, by a weak reference."""
    if origin is not None:
        graph._ipu_tf_origin = weakref.ref(origin)


def origin_of(graph: tf.Graph) -> Any:
    """Returns the graph that the ops of a graph were copied from under the same names; None if there is none."""
    reference = getattr(graph, "_ipu_tf_origin", None)
    return None if reference is None else reference()


def operation_named(graph: tf.Graph, name: str) -> tf.Operation | None:
    """Returns the op of this name in a graph; None if there is none."""
    try:
        return graph.get_operation_by_name(name)
    except (KeyError, ValueError):
        return None


def known_functions(graph: tf.Graph) -> dict[str, Any]:
    """Returns the `FuncGraph`s of the functions that a graph's ops call, by name, as far as known."""
    functions = {name: getattr(function, "graph", None) for name, function in graph._functions.items()}
    return {name: traced for name, traced in functions.items() if traced is not None}


def called_graphs(operation: tf.Operation) -> list[Any]:
    """Returns the `FuncGraph`s of the functions that a call, loop or branch op calls."""
    known = known_functions(operation.graph)
    names = [called.name for value in operation.node_def.attr.values() for called in (value.func, *value.list.func)]
    return [known[name] for name in names if name in known]


def operations_within(graph: tf.Graph) -> Iterator[tf.Operation]:
    """Yields the ops of a graph, and of the functions, loops and branches in it, as far as known."""
    waiting, seen = [graph], {graph}
    while waiting:
        current = waiting.pop()
        yield from current.get_operations()
        found = set(known_functions(current).values()) - seen
        waiting += found
        seen |= found


def devices_in_functions(graph: tf.Graph) -> list[str]:
    """Returns the device strings of ops in the functions, loops and branches of a graph."""
    nodes = (node for function in graph.as_graph_def().library.function for node in function.node_def)
    return list(dict.fromkeys(node.device for node in nodes if node.device))


def operation_count(graph: tf.Graph) -> int:
    """Returns the number of ops of a graph."""
    return int(graph.num_operations())


@contextlib.contextmanager
def extending(graph: tf.Graph) -> Iterator[None]:
    """Context manager: adds ops to a graph, also to a finalized one, outside of all open scopes."""
    finalized = graph.finalized
    graph._unsafe_unfinalize()
    try:
        with graph.as_default(), tf.name_scope(""), tf.device(None), tf.control_dependencies(None):
            yield
    finally:
        if finalized:
            graph.finalize()


def op_definition(op_type: str) -> Any:
    """Returns the `OpDef` of an op type; None if it is a function's name."""
    return _op_def_registry.get(op_type)


def add_op(op_type: str, arguments: dict[str, Any]) -> Any:
    """Adds an op to the current graph; returns its output tensors, or the op if it has none.

    Args:
        op_type: its type.
        arguments: its inputs and those attributes that do not follow from them.
    """
    return _op_def_library.apply_op(op_type, **arguments)
