"""Private API of TensorFlow for tracing and graphs that this package uses.

If TensorFlow moves one of these, `tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla as _tf2xla
from tensorflow.compiler.xla import xla_data_pb2 as _xla_data
from tensorflow.python.data.ops import dataset_ops as _dataset_ops
from tensorflow.python.eager import context as _context
from tensorflow.python.eager.polymorphic_function import compiler_ir as _compiler_ir
from tensorflow.python.framework import convert_to_constants as _convert_to_constants
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import importer as _importer
from tensorflow.python.framework import kernels as _kernels
from tensorflow.python.framework import op_def_library as _op_def_library
from tensorflow.python.framework import op_def_registry as _op_def_registry
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import control_flow_ops as _control_flow_ops
from tensorflow.python.ops import control_flow_util as _control_flow_util
from tensorflow.python.platform import tf_logging as _tf_logging

from ipu_tf.lowering.tensorflow.graph_pruning import part_of
from ipu_tf.lowering.tensorflow.tf_values import current_device


def concrete_function(function: Any, *specs: tf.TensorSpec) -> Any:
    """`function.get_concrete_function(*specs)`, whose graph is taken apart when the concrete function is dropped.

    The public method gives up that duty. A graph left alone is a cycle that Python's collector does not find, and
    keeps every variable that the function uses.
    """
    return function._get_concrete_function_garbage_collected(*specs)


def stablehlo_bytecode(function: Any, specs: Sequence[tf.TensorSpec]) -> bytes:
    """Lowers a concrete function by tf2xla for the CPU; returns MLIR bytecode of the StableHLO dialect."""
    return _compiler_ir.from_concrete_function(function, list(specs))("stablehlo_serialized", platform_name="CPU")


@contextlib.contextmanager
def without_op_callbacks() -> Iterator[None]:
    """Context manager: disables op callbacks, such as that of `tf.debugging.enable_check_numerics`."""
    context = _context.context()
    callbacks = list(context.op_callbacks)
    for callback in callbacks:
        context.remove_op_callback(callback)
    try:
        yield
    finally:
        for callback in callbacks:
            context.add_op_callback(callback)


def custom_call(
    target: str, operands: Sequence[tf.Tensor], results: Sequence[tf.TensorSpec], configuration: str, side_effect: bool
) -> Any:
    """Adds an op that tf2xla lowers to `stablehlo.custom_call @target`; returns its result tensors."""
    return _tf2xla.custom_call_v2(target, list(operands), list(results), configuration, side_effect)


def trace_in_graph(name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Traces a Python function into a `FuncGraph` nested in the current graph.

    Variables that the function makes belong to the current graph; tensors of it that the function reads are
    captured. Ops are placed as they would be in the current graph.
    """
    place = current_device() or None

    def in_xla_context(*tensors: Any) -> Any:
        # TensorFlow makes loops whose gradients can be lowered only where it knows that XLA will compile them.
        xla = _control_flow_ops.XLAControlFlowContext()
        xla.Enter()
        try:
            # The host keeps variables, also those that a function makes in an IPU's scope.
            with tf.device(place), tf.compat.v1.variable_creator_scope(_on_host):
                return function(*tensors)
        finally:
            xla.Exit()

    return _func_graph.func_graph_from_py_func(
        name, in_xla_context, tuple(arguments), {}, add_control_dependencies=True
    )


def _on_host(next_creator: Callable[..., Any], **arguments: Any) -> Any:
    initial = arguments.get("initial_value")
    if isinstance(initial, tf.Tensor) and isinstance(initial.graph, _func_graph.FuncGraph):
        with tf.init_scope():
            lifted = _outside(initial)
        arguments["initial_value"] = lambda: lifted
    with tf.device("/device:CPU:0"):
        return next_creator(**arguments)


def _outside(tensor: tf.Tensor) -> tf.Tensor:
    """A tensor of a function graph computed again in the current graph, from what the function graph captured."""
    inner = ancestors(tensor.op)
    captures = [(outer, placeholder) for outer, placeholder in tensor.graph.captures if placeholder.op in inner]
    taken = {placeholder.op.name for _, placeholder in captures}
    nodes = part_of(tensor.graph.as_graph_def(), {operation.name for operation in inner} - taken, alone=True)
    inputs = {placeholder.name: outer for outer, placeholder in captures}
    [result] = tf.graph_util.import_graph_def(nodes, inputs, [tensor.name], name="initial_value")
    return result


def import_graph(
    graph_def: Any, inputs: dict[str, tf.Tensor], outputs: Sequence[str], origin: tf.Graph | None = None
) -> list[Any]:
    """Copies a graph's nodes into the function graph being built, with some tensors replaced.

    Args:
        graph_def: the nodes.
        inputs: what stands for tensors that the nodes refer to, by their names; eager tensors are captured.
        outputs: names of the tensors to give.
        origin: the graph that the nodes are from, which knows the lines they were made at.
    """
    graph = _ops.get_default_graph()
    set_origin(graph, origin)
    fed = {name: graph.capture(tensor) for name, tensor in inputs.items()}
    return list(_importer.import_graph_def(graph_def, fed, list(outputs), name=""))


def ancestors(operation: tf.Operation) -> list[tf.Operation]:
    """Every operation that an operation depends on, itself included."""
    found: dict[tf.Operation, None] = {}
    waiting = [operation]
    while waiting:
        current = waiting.pop()
        if current not in found:
            found[current] = None
            waiting += [tensor.op for tensor in current.inputs] + list(current.control_inputs)
    return list(found)


def is_concrete(function: Any) -> bool:
    """Returns whether something is a concrete function."""
    return isinstance(function, tf.types.experimental.ConcreteFunction)


def log_info(message: str, *arguments: Any) -> None:
    """Writes a line to TensorFlow's log, as its session hooks do."""
    _tf_logging.info(message, *arguments)


@contextlib.contextmanager
def prune_unused() -> Iterator[None]:
    """Context manager: loops of the function graph being traced run what their results depend on, and nothing else.

    As in TensorFlow 1. Otherwise they run every operation with side effects.
    """
    graph = _ops.get_default_graph()
    before = graph._add_control_dependencies
    graph._add_control_dependencies = False
    graph._ipu_only_what_is_used = True
    try:
        yield
    finally:
        graph._add_control_dependencies = before


def define_functions(owner: object, definitions: Sequence[Any]) -> None:
    """Makes functions that TensorFlow does not know known to it by their definitions, as long as `owner` lives."""
    context = _context.context()
    context.ensure_initialized()
    for definition in definitions:
        if context.has_function(definition.signature.name):
            continue
        context.add_function_def(definition)
        weakref.finalize(owner, context.remove_function, definition.signature.name).atexit = False


def prunes_unused(graph: Any) -> bool:
    """Returns whether a function graph has loops that were traced within `prune_unused`."""
    return getattr(graph, "_ipu_only_what_is_used", False)


def captured_from(tensor: tf.Tensor) -> tf.Tensor:
    """What a tensor stands for that function graphs or loops took over from the graphs around them."""
    while True:
        captures = tensor.graph.captures if isinstance(tensor.graph, _func_graph.FuncGraph) else ()
        outer = next((outer for outer, inner in captures if inner is tensor), None)
        if outer is None and tensor.op.type in ("Enter", "Switch", "Identity"):
            outer = tensor.op.inputs[0]
        if outer is None:
            return tensor
        tensor = outer


def compiles(operation_type: str) -> bool:
    """Returns whether tf2xla can lower ops of a type. Function calls and inputs, which it opens up, count."""
    kernels = _kernels.get_registered_kernels_for_op(operation_type).kernel
    return not kernels or any(kernel.device_type == "XLA_CPU_JIT" for kernel in kernels)


#: A dataset whose elements are like those of the dataset it is made from: `(input_dataset, variant_tensor)`.
SameStructureDataset: type = _dataset_ops.UnaryUnchangedStructureDataset


def in_program(graph: tf.Graph) -> bool:
    """Returns whether a graph is, or lies in, one that is traced for the device (or for XLA otherwise)."""
    return bool(_control_flow_util.GraphOrParentsInXlaContext(graph))


def scope_attribute(name: str) -> Any:
    """The `AttrValue` that ops made here are given under a name; None where there is none."""
    return tf.compat.v1.get_default_graph()._attr_scope_map.get(name)


@contextlib.contextmanager
def attribute_scope(name: str, value: Any) -> Iterator[None]:
    """Ops made within it, in the current graph, carry an `AttrValue` under a name."""
    with tf.compat.v1.get_default_graph()._attr_scope({name: value}):
        yield


def set_scope_attribute(name: str, value: Any) -> None:
    """Ops made from now on, in the current graph, carry an `AttrValue` under a name."""
    tf.compat.v1.get_default_graph()._attr_scope_map[name] = value


def set_attribute(operation: tf.Operation, name: str, value: Any) -> None:
    """Gives an op an `AttrValue` under a name."""
    operation._set_attr(name, value)


def string_map(serialized: bytes) -> dict[str, str]:
    """The strings by name in a serialized `FrontendAttributes` message."""
    message = _xla_data.FrontendAttributes()
    message.ParseFromString(serialized)
    return dict(message.map)


def serialized_map(strings: dict[str, str]) -> bytes:
    """Strings by name as a serialized `FrontendAttributes` message."""
    return bytes(_xla_data.FrontendAttributes(map=strings).SerializeToString())


def gradient_function(operation: tf.Operation) -> Callable[..., Any] | None:
    """What gives an op's gradients; None where it has none."""
    try:
        return _ops.get_gradient_function(operation)
    except LookupError:
        return None


def forget_custom_gradients(graph_def: tf.compat.v1.GraphDef) -> None:
    """Forgets how `tf.custom_gradient` differentiates ops of a graph that is not differentiated any more.

    TensorFlow's registry keeps that for ever, and with it the graph, the graphs around it, and all that they use.

    Args:
        graph_def: of that graph, with the functions that it calls: bodies of loops, branches.
    """
    registered = _ops.gradient_registry._registry
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        for node in nodes:
            name = node.attr["_gradient_op_type"].s.decode() if node.op == "IdentityN" else ""
            if name.startswith("CustomGradient-"):
                registered.pop(name, None)


def set_gradient_function(operation: tf.Operation, function: Callable[..., Any]) -> None:
    """Replaces what gives an op's gradients, in `tf.gradients`."""
    operation._gradient_function = function


def captured_tensors(graph: tf.Graph) -> list[tf.Tensor]:
    """What a graph of a function has captured of the graphs around it so far."""
    return list(getattr(graph, "external_captures", ()))


EagerTensor: type = _ops.EagerTensor


def creation_number(operation: tf.Operation) -> int:
    """Grows from op to op of a graph, in the order in which they were made."""
    return int(operation._id)


def control_flow_group(operation: tf.Operation) -> str | None:
    """The name of the outermost loop or branch, of TensorFlow 1's kind, that an op lies in; None outside of them."""
    context = operation._get_control_flow_context()
    while context is not None and context.outer_context is not None:
        context = context.outer_context
    return None if context is None else str(context.name)


def graph_dict(graph: tf.Graph, name: str) -> dict[Any, Any]:
    """A dictionary that lives as long as a graph, the same one for each name."""
    if not hasattr(graph, "_ipu_tf_kept"):
        graph._ipu_tf_kept = {}
    kept: dict[Any, Any] = graph._ipu_tf_kept.setdefault(name, {})
    return kept


def set_origin(graph: tf.Graph, origin: tf.Graph | None) -> None:
    """Notes from which graph the ops of a graph were copied, without keeping that alive."""
    if origin is not None:
        graph._ipu_tf_origin = weakref.ref(origin)


def origin_of(graph: tf.Graph) -> Any:
    """The graph that the ops of a graph were copied from under the same names; None if they were not, or it is gone."""
    reference = getattr(graph, "_ipu_tf_origin", None)
    return None if reference is None else reference()


def operation_named(graph: tf.Graph, name: str) -> tf.Operation | None:
    """The op of a graph that has this name; None if there is none."""
    try:
        return graph.get_operation_by_name(name)
    except (KeyError, ValueError):
        return None


def known_functions(graph: tf.Graph) -> dict[str, Any]:
    """The `FuncGraph`s of the functions that a graph's ops call, by name; those without one are left out."""
    functions = {name: getattr(function, "graph", None) for name, function in graph._functions.items()}
    return {name: traced for name, traced in functions.items() if traced is not None}


def called_graphs(operation: tf.Operation) -> list[Any]:
    """The `FuncGraph`s of the functions that an op calls: of a call, a loop or a branch."""
    known = known_functions(operation.graph)
    names = [called.name for value in operation.node_def.attr.values() for called in (value.func, *value.list.func)]
    return [known[name] for name in names if name in known]


def devices_in_functions(graph: tf.Graph) -> list[str]:
    """The devices that ops are placed on in the functions, loops and branches of a graph, as TensorFlow spells them."""
    nodes = (node for function in graph.as_graph_def().library.function for node in function.node_def)
    return list(dict.fromkeys(node.device for node in nodes if node.device))


def operation_count(graph: tf.Graph) -> int:
    """How many ops a graph has."""
    return int(graph.num_operations())


@contextlib.contextmanager
def extending(graph: tf.Graph) -> Iterator[None]:
    """Context manager: ops are added to a graph, also to a finalized one, outside of every scope that is open now."""
    finalized = graph.finalized
    graph._unsafe_unfinalize()
    try:
        with graph.as_default(), tf.name_scope(""), tf.device(None), tf.control_dependencies(None):
            yield
    finally:
        if finalized:
            graph.finalize()


def op_definition(op_type: str) -> Any:
    """The `OpDef` of a type of op; None if it is no op but a function."""
    return _op_def_registry.get(op_type)


def add_op(op_type: str, arguments: dict[str, Any]) -> Any:
    """Adds an op to the graph that is being made; gives its output tensors, or itself if it has none.

    Args:
        op_type: its type.
        arguments: its inputs and those attributes that do not follow from them.
    """
    return _op_def_library.apply_op(op_type, **arguments)


def frozen(function: Any) -> Any:
    """A concrete function with the values that its variables have now in their places."""
    constant = _convert_to_constants.convert_variables_to_constants_v2(function)
    set_origin(constant.graph, function.graph)
    return constant


def has_custom_calls(function: Any) -> bool:
    """Returns whether a concrete function uses markers of this project, which TensorFlow alone cannot run."""
    graph = function.graph.as_graph_def()
    bodies = [graph.node, *(inner.node_def for inner in graph.library.function)]
    return any(node.op == "XlaCustomCallV2" for nodes in bodies for node in nodes)


def call_module(
    inputs: Sequence[tf.Tensor], module: bytes, version: int, platforms: Sequence[str], results: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    """The results of a serialized StableHLO module, as `jax.export` makes them, run by TensorFlow's XLA."""
    return list(
        _tf2xla.call_module(
            list(inputs),
            version=version,
            module=module,
            Tout=[spec.dtype for spec in results],
            Sout=[spec.shape for spec in results],
            platforms=list(platforms),
        )
    )
