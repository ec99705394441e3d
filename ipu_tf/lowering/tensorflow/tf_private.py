"""Private API of TensorFlow for tracing and lowering functions that this package uses.

If TensorFlow moves one of these, `tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla as _tf2xla
from tensorflow.python.data.ops import dataset_ops as _dataset_ops
from tensorflow.python.eager import context as _context
from tensorflow.python.eager.polymorphic_function import compiler_ir as _compiler_ir
from tensorflow.python.framework import auto_control_deps_utils as _auto_control_deps_utils
from tensorflow.python.framework import convert_to_constants as _convert_to_constants
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import importer as _importer
from tensorflow.python.framework import kernels as _kernels
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import control_flow_ops as _control_flow_ops
from tensorflow.python.ops import resource_variable_ops as _resource_variable_ops
from tensorflow.python.platform import tf_logging as _tf_logging

from ipu_tf.device.paused_collection import paused_collection
from ipu_tf.lowering.tensorflow.graph_pruning import part_of
from ipu_tf.lowering.tensorflow.tf_graphs import ancestors, set_origin, tracing_for_device
from ipu_tf.lowering.tensorflow.tf_stacks import shared_stacks
from ipu_tf.lowering.tensorflow.tf_values import current_device


@paused_collection()
def concrete_function(function: Any, *specs: tf.TensorSpec) -> Any:
    """Traces a function for the device by `function.get_concrete_function(*specs)`.

    Its graph is dismantled when the concrete function is dropped. The public method gives up that duty. A graph left
    alone is a cycle that Python's collector does not find, and keeps every variable that the function uses.
    """
    with tracing_for_device(), shared_stacks():
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


def may_write(operation: tf.Operation, handle: tf.Tensor) -> bool:
    """Returns whether an op that takes a variable's handle may change the variable.

    Of loops, branches and calls TensorFlow notes the handles that what is inside only reads.
    """
    return bool(_auto_control_deps_utils._op_writes_to_resource(handle, operation))


def custom_call(
    target: str, operands: Sequence[tf.Tensor], results: Sequence[tf.TensorSpec], configuration: str, side_effect: bool
) -> Any:
    """Adds an op that tf2xla lowers to `stablehlo.custom_call @target`; returns its result tensors."""
    return _tf2xla.custom_call_v2(target, list(operands), list(results), configuration, side_effect)


@contextlib.contextmanager
def variables_outside_trace() -> Iterator[None]:
    """Context manager: variables are created eagerly, unnoticed by the `tf.function` that is being traced.

    A `tf.function` that creates variables is traced twice: their initialization is part of the first graph.
    """

    def create(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        return _resource_variable_ops.default_variable_creator_v2(None, **arguments)

    with tf.init_scope():
        if not tf.executing_eagerly():
            yield
            return
        # Called after the creators of users and strategies, whose priority is 100, and in place of tf.function's, 50.
        with _ops.get_default_graph()._variable_creator_scope(create, priority=60):
            yield


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

    with tracing_for_device(), shared_stacks():
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
    """Recomputes a tensor of a function graph in the current graph, from the function graph's captures."""
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


def is_concrete(function: Any) -> bool:
    """Returns whether an object is a concrete function."""
    return isinstance(function, tf.types.experimental.ConcreteFunction)


def log_info(message: str, *arguments: Any) -> None:
    """Writes a line to TensorFlow's log, as its session hooks do."""
    _tf_logging.info(message, *arguments)


@contextlib.contextmanager
def prune_unused() -> Iterator[None]:
    """Context manager: loops of the function graph being traced are pruned to what their results depend on.

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
    """Registers functions with TensorFlow by their definitions, as long as `owner` lives."""
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


def compiles(operation_type: str) -> bool:
    """Returns whether tf2xla can lower ops of a type; function calls and inputs included."""
    kernels = _kernels.get_registered_kernels_for_op(operation_type).kernel
    return not kernels or any(kernel.device_type == "XLA_CPU_JIT" for kernel in kernels)


#: A dataset whose elements are like those of the dataset it is made from: `(input_dataset, variant_tensor)`.
SameStructureDataset: type = _dataset_ops.UnaryUnchangedStructureDataset


def frozen(function: Any) -> Any:
    """Returns a concrete function with its variables replaced by their values as constants."""
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
    """Adds a call of a serialized StableHLO module, as `jax.export` makes them, run by TensorFlow's XLA."""
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
