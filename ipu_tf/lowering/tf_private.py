"""Everything the project takes from TensorFlow beyond its public interface.

If TensorFlow moves one of these, `tests/test_private_api.py` names it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla as _tf2xla
from tensorflow.compiler.xla import xla_data_pb2 as _xla_data
from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.client import session as _session
from tensorflow.python.data.ops import dataset_ops as _dataset_ops
from tensorflow.python.data.ops import iterator_ops as _iterator_ops
from tensorflow.python.distribute import device_util as _device_util
from tensorflow.python.eager import backprop as _backprop
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import execute as _execute
from tensorflow.python.eager.polymorphic_function import compiler_ir as _compiler_ir
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import importer as _importer
from tensorflow.python.framework import kernels as _kernels
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import control_flow_ops as _control_flow_ops
from tensorflow.python.ops import control_flow_util as _control_flow_util
from tensorflow.python.ops import handle_data_util as _handle_data_util
from tensorflow.python.ops import resource_variable_ops as _resource_variable_ops
from tensorflow.python.platform import tf_logging as _tf_logging

_local = threading.local()


def stablehlo_bytecode(function: Any, specs: Sequence[tf.TensorSpec]) -> bytes:
    """A concrete function lowered by tf2xla for the CPU: MLIR bytecode of the StableHLO dialect."""
    return _compiler_ir.from_concrete_function(function, list(specs))("stablehlo_serialized", platform_name="CPU")


def custom_call(
    target: str, operands: Sequence[tf.Tensor], results: Sequence[tf.TensorSpec], configuration: str, side_effect: bool
) -> Any:
    """A marker that survives tf2xla as `stablehlo.custom_call @target`; gives its result tensors."""
    return _tf2xla.custom_call_v2(target, list(operands), list(results), configuration, side_effect)


def tensor_memory(tensor: tf.Tensor) -> np.ndarray:
    """A host tensor's memory as an array, without a copy."""
    array = tensor._numpy()
    if isinstance(array, np.ndarray):
        return array
    # TensorFlow copies scalars; their memory is reached through the buffer protocol, which has no bfloat16.
    if tensor.dtype == tf.bfloat16:
        return np.asarray(memoryview(tf.bitcast(tensor, tf.uint16))).view(tf.bfloat16.as_numpy_dtype)
    return np.asarray(memoryview(tensor))


@contextlib.contextmanager
def eager_mode() -> Iterator[None]:
    """Within it, TensorFlow executes eagerly on the host, whatever the program has switched off or asked for."""
    with _context.eager_mode(), tf.device("/device:CPU:0"):
        yield


def trace_in_graph(name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Traces a Python function into a `FuncGraph` nested in the current graph.

    Variables that the function makes belong to the current graph; tensors of it that the function reads are
    captured.
    """

    def in_xla_context(*tensors: Any) -> Any:
        # TensorFlow makes loops whose gradients can be lowered only where it knows that XLA will compile them.
        xla = _control_flow_ops.XLAControlFlowContext()
        xla.Enter()
        try:
            # The host keeps variables, also those that a function makes in an IPU's scope.
            with tf.compat.v1.variable_creator_scope(_on_host):
                return function(*tensors)
        finally:
            xla.Exit()

    return _func_graph.func_graph_from_py_func(
        name, in_xla_context, tuple(arguments), {}, add_control_dependencies=True
    )


def _on_host(next_creator: Callable[..., Any], **arguments: Any) -> Any:
    with tf.device("/device:CPU:0"):
        return next_creator(**arguments)


def import_graph(graph_def: Any, inputs: dict[str, tf.Tensor], outputs: Sequence[str]) -> list[Any]:
    """Copies a graph's nodes into the function graph being built, with some tensors replaced.

    Args:
        graph_def: the nodes.
        inputs: what stands for tensors that the nodes refer to, by their names; eager tensors are captured.
        outputs: names of the tensors to give.
    """
    graph = _ops.get_default_graph()
    fed = {name: graph.capture(tensor) for name, tensor in inputs.items()}
    return list(_importer.import_graph_def(graph_def, fed, list(outputs), name=""))


def stock_iterator(dataset: tf.data.Dataset) -> Any:
    """TensorFlow's own iterator over a dataset, also where `iter(dataset)` means something else."""
    return _iterator_ops.OwnedIterator(dataset)


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


def executing_eagerly() -> bool:
    """Whether ops run at once here, rather than being added to a graph."""
    return _context.executing_eagerly()


def current_device() -> str:
    """The device asked for here, as TensorFlow spells it; an empty string if none was."""
    return _device_util.current()


@contextlib.contextmanager
def dataset_iterators(make: Callable[[tf.data.Dataset], Any] | None) -> Iterator[None]:
    """Within it, in this thread, `iter(dataset)` is what `make` gives; None means TensorFlow's own iterator."""
    _install_iterator_hook()
    outer = getattr(_local, "make_iterator", None)
    _local.make_iterator = make
    try:
        yield
    finally:
        _local.make_iterator = outer


def _install_iterator_hook() -> None:
    stock = _dataset_ops.DatasetV2.__iter__
    if getattr(stock, "_ipu_tf_hook", False):
        return

    def hooked(self: Any) -> Any:
        make = getattr(_local, "make_iterator", None)
        return make(self) if make is not None else stock(self)

    hooked._ipu_tf_hook = True  # type: ignore[attr-defined]
    _dataset_ops.DatasetV2.__iter__ = hooked


def handle_spec(handle: tf.Tensor) -> tf.TensorSpec:
    """Shape and dtype of the variable behind a resource handle of a graph."""
    data = _handle_data_util.get_resource_handle_data(handle).shape_and_type[0]
    return tf.TensorSpec(tf.TensorShape(data.shape), tf.as_dtype(data.dtype))


def read_handle(handle: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
    """The value of the variable of this shape and dtype behind a resource handle."""
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=spec.dtype)
    value.set_shape(spec.shape)
    return value


def assign_handle(handle: tf.Tensor, value: tf.Tensor) -> tf.Operation:
    """Assigns to the variable behind a resource handle."""
    return tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def variable_of(handle: tf.Tensor) -> tf.Variable | None:
    """The variable behind an eager resource handle, by a new object for it; None for other resources."""
    data = handle._handle_data
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    kind = data.shape_and_type[0]
    return _resource_variable_ops.BaseResourceVariable(
        trainable=False,
        shape=tf.TensorShape(kind.shape),
        dtype=tf.as_dtype(kind.dtype),
        handle=handle,
        handle_name="captured",
        unique_id=f"captured_{id(handle)}",
    )


def is_concrete(function: Any) -> bool:
    """Whether something is a concrete function."""
    return isinstance(function, tf.types.experimental.ConcreteFunction)


def hook_sessions(original: Callable[[BaseException], BaseException | None]) -> None:
    """Makes `Session.run` raise the exception of a Python function in the graph itself, where `original` knows it."""
    stock = _session.BaseSession.run
    if getattr(stock, "_ipu_tf_hook", False):
        return

    @functools.wraps(stock)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return stock(self, *args, **kwargs)
        except tf.errors.OpError as error:
            known = original(error)
            if known is None:
                raise
            raise known from error

    run._ipu_tf_hook = True  # type: ignore[attr-defined]
    _session.BaseSession.run = run


def log_info(message: str, *arguments: Any) -> None:
    """A line in TensorFlow's log, where its own session hooks write."""
    _tf_logging.info(message, *arguments)


@contextlib.contextmanager
def only_what_is_used() -> Iterator[None]:
    """Within it, loops of the function graph being traced run what their results depend on, and nothing else.

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
    """Makes functions known to TensorFlow by their definitions, as long as `owner` lives."""
    context = _context.context()
    context.ensure_initialized()
    for definition in definitions:
        context.add_function_def(definition)
        weakref.finalize(owner, context.remove_function, definition.signature.name).atexit = False


def runs_only_what_is_used(graph: Any) -> bool:
    """Whether a function graph has loops that were traced within `only_what_is_used`."""
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
    """Whether tf2xla knows how to lower ops of a type. Function calls and inputs, which it opens up, count."""
    kernels = _kernels.get_registered_kernels_for_op(operation_type).kernel
    return not kernels or any(kernel.device_type == "XLA_CPU_JIT" for kernel in kernels)


#: A dataset whose elements are like those of the dataset it is made from: `(input_dataset, variant_tensor)`.
SameStructureDataset: type = _dataset_ops.UnaryUnchangedStructureDataset


def dataset_variant(dataset: tf.data.Dataset) -> tf.Tensor:
    """The tensor that stands for a dataset in a graph."""
    return dataset._variant_tensor


def in_program(graph: tf.Graph) -> bool:
    """Whether a graph is, or lies in, one that is traced for the device (or for XLA otherwise)."""
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


def set_gradient_function(operation: tf.Operation, function: Callable[..., Any]) -> None:
    """Replaces what gives an op's gradients, in `tf.gradients`."""
    operation._gradient_function = function


def hook_gradient_tapes(attribute: str, within: Callable[[Any], Any]) -> None:
    """Makes gradient tapes compute the gradients of an op within a context manager that depends on the op.

    Args:
        attribute: only ops of graphs that are made where `attribute_scope` has set this attribute are concerned.
        within: from the attribute's value to the context manager. It stays in force; a second call changes nothing.
    """
    if getattr(_execute.record_gradient, "_ipu_tf_hook", False):
        return
    stock_record = _execute.record_gradient

    def record(op_name: str, inputs: Any, attrs: Any, *rest: Any) -> Any:
        value = None if _context.executing_eagerly() else scope_attribute(attribute)
        if value is not None:
            attrs = (*(attrs or ()), attribute, value)
        return stock_record(op_name, inputs, attrs, *rest)

    def gradient(op_name: str, attrs: Any, *rest: Any) -> Any:
        if not attrs or attrs[-2:-1] != (attribute,):
            return _backprop._gradient_function(op_name, attrs, *rest)
        with within(attrs[-1]):
            return _backprop._gradient_function(op_name, attrs[:-2], *rest)

    record._ipu_tf_hook = True  # type: ignore[attr-defined]
    _execute.record_gradient = record
    _pywrap_tfe.TFE_Py_RegisterGradientFunction(gradient)


def create_optimizer_variables(optimizer: Any, variables: Sequence[Any]) -> None:
    """Makes an optimizer's variables now, where they cannot be made later: inside a branch.

    Args:
        optimizer: a v1 one, or a Keras one of any generation.
        variables: what it is going to train.
    """
    inner = getattr(optimizer, "_opt", None)
    if inner is not None:
        create_optimizer_variables(inner, variables)
    elif isinstance(optimizer, tf.compat.v1.train.Optimizer):
        with _ops.init_scope():
            optimizer._create_slots(variables)
        optimizer._prepare()
    elif hasattr(optimizer, "_create_all_weights"):
        with _ops.init_scope():
            optimizer._create_all_weights(variables)
    elif not optimizer.built:
        with _ops.init_scope():
            optimizer.build(variables)


def captured_tensors(graph: tf.Graph) -> list[tf.Tensor]:
    """What a graph of a function has captured of the graphs around it so far."""
    return list(getattr(graph, "external_captures", ()))


EagerTensor: type = _ops.EagerTensor
