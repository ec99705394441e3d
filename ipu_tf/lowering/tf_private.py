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
from tensorflow.python.compiler.xla import xla as _xla
from tensorflow.python.data.ops import dataset_ops as _dataset_ops
from tensorflow.python.data.ops import iterator_ops as _iterator_ops
from tensorflow.python.distribute import device_util as _device_util
from tensorflow.python.eager import backprop as _backprop
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import core as _core
from tensorflow.python.eager import execute as _execute
from tensorflow.python.eager.polymorphic_function import atomic_function as _atomic_function
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
from tensorflow.python.ops import gen_candidate_sampling_ops as _gen_candidate_sampling_ops
from tensorflow.python.ops import handle_data_util as _handle_data_util
from tensorflow.python.ops import resource_variable_ops as _resource_variable_ops
from tensorflow.python.platform import tf_logging as _tf_logging

from ipu_tf.lowering.graph_pruning import part_of

_local = threading.local()

#: From a device, an op's type, its inputs and its attributes (names and values in turn) to its outputs.
RunEagerOp = Callable[[str, str, Sequence[tf.Tensor], Sequence[Any]], Sequence[tf.Tensor] | None]


def concrete_function(function: Any, *specs: tf.TensorSpec) -> Any:
    """`function.get_concrete_function(*specs)`, whose graph is taken apart when the concrete function is dropped.

    The public method gives up that duty. A graph left alone is a cycle that Python's collector does not find, and
    keeps every variable that the function uses.
    """
    return function._get_concrete_function_garbage_collected(*specs)


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
        with eager_mode():
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


_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


def element_reader(iterator: Any) -> Callable[[], tuple[np.ndarray, ...]] | None:
    """Reads the elements of TensorFlow's own eager iterator as arrays in host memory, without the cost of `next`.

    `next` makes a structure and asks for types and shapes each time, which takes longer than the read itself. The
    reader gives the tensors in the order of `tf.nest.flatten`, optionals left out, in any thread, whatever mode or
    device is chosen there; it raises `StopIteration` at the end.

    Returns:
        The reader, or None for other iterators, and for elements that consist of more than tensors.
    """
    if type(iterator) is not _iterator_ops.OwnedIterator:
        return None
    specs = tf.nest.flatten(iterator.element_spec)
    if not all(isinstance(spec, (tf.TensorSpec, tf.OptionalSpec)) for spec in specs):
        return None
    kept = [place for place, spec in enumerate(specs) if isinstance(spec, tf.TensorSpec)]
    types = tuple(dtype.as_datatype_enum for dtype in iterator._flat_output_types)
    shapes = tuple(None if shape.rank is None else tuple(shape) for shape in iterator._flat_output_shapes)
    attributes = ("output_types", types, "output_shapes", shapes)
    inputs, count = [iterator._iterator_resource], len(types)
    execute, handle = _pywrap_tfe.TFE_Py_Execute, _context.context()._handle

    def read() -> tuple[np.ndarray, ...]:
        try:
            tensors = execute(handle, _HOST, "IteratorGetNext", inputs, attributes, count)
        except tf.errors.OutOfRangeError:
            raise StopIteration from None
        except _core._NotOkStatusException as error:
            converted = _core._status_to_exception(error)
            if isinstance(converted, tf.errors.OutOfRangeError):
                raise StopIteration from None
            raise converted from None
        return tuple([tensor_memory(tensors[place]) for place in kept])

    return read


def read_variables(variables: Sequence[tf.Variable]) -> Sequence[tf.Tensor]:
    """The values of eager variables, in one op; no copies. In any thread, whatever mode or device is chosen there."""
    if not variables:
        return []
    handles = [variable.handle for variable in variables]
    types = tuple([variable.dtype.base_dtype.as_datatype_enum for variable in variables])
    attributes, handle = ("N", len(types), "dtypes", types), _context.context()._handle
    try:
        tensors: Sequence[tf.Tensor] = _pywrap_tfe.TFE_Py_Execute(
            handle, _HOST, "_ReadVariablesOp", handles, attributes, len(types)
        )
    except _core._NotOkStatusException as error:
        raise _core._status_to_exception(error) from None
    return tensors


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


_READ_FIRST = "_ipu_read_first"


def is_variable_itself(value: Any) -> bool:
    """Whether something is a variable, and not what an assignment gives: a variable to be read after it."""
    return isinstance(value, tf.Variable) and not isinstance(value, _resource_variable_ops._UnreadVariable)


def read_first(variable: tf.Variable) -> tf.Tensor:
    """A variable's value before the function graph being built changes it, wherever in it this is called."""
    with tf.control_dependencies(None):
        value = read_handle(variable.handle, tf.TensorSpec(variable.shape, variable.dtype))
    value.op._set_attr(_READ_FIRST, tf.compat.v1.AttrValue(b=True))
    return value


def order_first_reads(graph: Any) -> None:
    """Puts the reads by `read_first` before every change of their variables, once a function graph is complete."""
    for read in [operation for operation in graph.get_operations() if _READ_FIRST in operation.node_def.attr]:
        read._remove_all_control_inputs()
        changes = [consumer for consumer in read.inputs[0].consumers() if consumer.type != read.type]
        for change in changes:
            change._add_control_input(read)


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
    """Makes functions that TensorFlow does not know known to it by their definitions, as long as `owner` lives."""
    context = _context.context()
    context.ensure_initialized()
    for definition in definitions:
        if context.has_function(definition.signature.name):
            continue
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


def forget_custom_gradients(graph: Any) -> None:
    """Forgets how `tf.custom_gradient` differentiates ops of a graph that nobody is going to differentiate any more.

    TensorFlow's registry keeps that for ever, and with it the graph and the variables that it uses.
    """
    registered = _ops.gradient_registry._registry
    for operation in graph.get_operations():
        name = operation.node_def.attr["_gradient_op_type"].s.decode() if operation.type == "IdentityN" else ""
        if name.startswith("CustomGradient-"):
            registered.pop(name, None)


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


def creation_number(operation: tf.Operation) -> int:
    """Grows from op to op of a graph, in the order in which they were made."""
    return int(operation._id)


def is_reference(tensor: tf.Tensor) -> bool:
    """Whether a tensor stands for the memory of a variable that is no resource."""
    return bool(tensor.dtype._is_ref_dtype)


def control_flow_group(operation: tf.Operation) -> str | None:
    """The name of the outermost loop or branch, of TensorFlow 1's kind, that an op lies in; None outside of them."""
    context = operation._get_control_flow_context()
    while context is not None and context.outer_context is not None:
        context = context.outer_context
    return None if context is None else str(context.name)


def kept_with(graph: tf.Graph, name: str) -> dict[Any, Any]:
    """A dictionary that lives as long as a graph, the same one for each name."""
    if not hasattr(graph, "_ipu_tf_kept"):
        graph._ipu_tf_kept = {}
    kept: dict[Any, Any] = graph._ipu_tf_kept.setdefault(name, {})
    return kept


def devices_in_functions(graph: tf.Graph) -> list[str]:
    """The devices that ops are placed on in the functions, loops and branches of a graph, as TensorFlow spells them."""
    nodes = (node for function in graph.as_graph_def().library.function for node in function.node_def)
    return list(dict.fromkeys(node.device for node in nodes if node.device))


def operation_count(graph: tf.Graph) -> int:
    """How many ops a graph has."""
    return int(graph.num_operations())


@contextlib.contextmanager
def extending(graph: tf.Graph) -> Iterator[None]:
    """Within it, ops are added to a graph, also to a finalized one, outside of every scope that is open now."""
    finalized = graph.finalized
    graph._unsafe_unfinalize()
    try:
        with graph.as_default(), tf.name_scope(""), tf.device(None), tf.control_dependencies(None):
            yield
    finally:
        if finalized:
            graph.finalize()


#: From what a session is to run (tensors to fetch, ops, names of fed tensors) to what it runs instead, or to None.
RewriteRun = Callable[
    [Any, Sequence[tf.Tensor], Sequence[tf.Operation], frozenset[str]],
    tuple[Sequence[tf.Tensor], Sequence[tf.Operation]] | None,
]


def hook_session_runs(rewrite: RewriteRun) -> None:
    """Makes sessions run what `rewrite` says, and place on the host what is left on devices that TensorFlow has not.

    `rewrite` is called with the session, which knows by `wants_strict_placement` what its maker asked for. A second
    call changes nothing.
    """
    cls = _session.BaseSession
    if getattr(cls._do_run, "_ipu_tf_hook", False):
        return
    stock_init, stock_run = cls.__init__, cls._do_run
    stock_callable, stock_from_options = cls.make_callable, cls._make_callable_from_options

    @functools.wraps(stock_init)
    def init(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        config = _context.context().config if config is None else config
        if isinstance(config, tf.compat.v1.ConfigProto):
            self._ipu_tf_strict = not config.allow_soft_placement
            config = tf.compat.v1.ConfigProto.FromString(config.SerializeToString())
            config.allow_soft_placement = True
            # What became a program has perhaps no kernel for the host.
            config.graph_options.place_pruned_graph = True
        stock_init(self, target, graph, config)

    @functools.wraps(stock_run)
    def do_run(
        self: Any, handle: Any, target_list: Any, fetch_list: Any, feed_dict: Any, options: Any, run_metadata: Any
    ) -> Any:
        fed = frozenset(reference.deref().name for reference in feed_dict)
        found = rewrite(self, fetch_list, target_list, fed)
        if found is not None:
            _check_whole_run(handle is None, "partial_run")
            fetch_list, target_list = found
        return stock_run(self, handle, list(target_list), list(fetch_list), feed_dict, options, run_metadata)

    @functools.wraps(stock_callable)
    def make_callable(self: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Any:
        # With a list of feeds, even an empty one, TensorFlow's callable goes through `run`.
        return stock_callable(self, fetches, [] if feed_list is None else feed_list, accept_options)

    @functools.wraps(stock_from_options)
    def make_callable_from_options(self: Any, options: Any) -> Any:
        fetches = [self.graph.get_tensor_by_name(name) for name in options.fetch]
        targets = [self.graph.get_operation_by_name(name) for name in options.target]
        found = rewrite(self, fetches, targets, frozenset(options.feed))
        _check_whole_run(found is None, "_make_callable_from_options")
        return stock_from_options(self, options)

    do_run._ipu_tf_hook = True  # type: ignore[attr-defined]
    cls.__init__, cls._do_run = init, do_run
    cls.make_callable, cls._make_callable_from_options = make_callable, make_callable_from_options


def wants_strict_placement(session: Any) -> bool:
    """Whether the maker of a session wants an error where a device that an op is placed on does not exist."""
    return bool(getattr(session, "_ipu_tf_strict", False))


def _check_whole_run(whole: bool, name: str) -> None:
    if not whole:
        raise NotImplementedError(
            f"Session.{name} would run ops that are placed on an IPU. They run as one program: use Session.run."
        )


def hook_eager_devices(
    is_ours: Callable[[str], bool], computes_there: Callable[[tf.Operation], bool], run: RunEagerOp
) -> None:
    """Lets eager ops that are asked to run on one of our devices run there. A second call changes nothing.

    TensorFlow would run them on the host in silence. A function with ops placed there is an error.

    Args:
        is_ours: whether a device is one of ours, by its name.
        computes_there: whether an op is placed on such a device and does more than move data.
        run: runs an op; gives its outputs, or None for what is the host's.
    """
    cls, function = _context._EagerDeviceContext, _atomic_function.AtomicFunction
    if getattr(cls.__enter__, "_ipu_tf_hook", False):
        return
    stock_enter, stock_exit, stock_call = cls.__enter__, cls.__exit__, function.call_flat

    def enter(self: Any) -> None:
        stock_enter(self)
        if _follow_device(self._ctx, is_ours):
            _hook_eager_ops(is_ours, run)

    def leave(self: Any, *error: Any) -> None:
        stock_exit(self, *error)
        _follow_device(self._ctx, is_ours)

    @functools.wraps(stock_call)
    def call_flat(self: Any, *args: Any) -> Any:
        if _context.executing_eagerly():
            _check_places(self, computes_there)
        return stock_call(self, *args)

    enter._ipu_tf_hook = True  # type: ignore[attr-defined]
    cls.__enter__, cls.__exit__, function.call_flat = enter, leave, call_flat


def _follow_device(context: Any, is_ours: Callable[[str], bool]) -> bool:
    """Whether this is one of our devices. Numbers become tensors there on the host, as soft placement allows."""
    ours = bool(context.device_name) and is_ours(context.device_name)
    before = getattr(_local, "soft_placement", None)
    if ours and before is None:
        _local.soft_placement = context.soft_device_placement
        context.soft_device_placement = True
    elif not ours and before is not None:
        context.soft_device_placement = before
        _local.soft_placement = None
    return ours


def _hook_eager_ops(is_ours: Callable[[str], bool], run: RunEagerOp) -> None:
    """Hands the eager ops of our devices to `run`. Programs that never enter such a device are not slowed by it."""
    if getattr(_pywrap_tfe.TFE_Py_Execute, "_ipu_tf_hook", False):
        return
    stock_fast, stock_execute = _pywrap_tfe.TFE_Py_FastPathExecute, _pywrap_tfe.TFE_Py_Execute

    def fast(context: Any, *args: Any) -> Any:
        if context.device_name and is_ours(context.device_name):
            # TensorFlow then prepares the op in Python and comes to `execute`.
            raise _core._FallbackException("this device's ops do not take the fast path")
        return stock_fast(context, *args)

    def execute(handle: Any, device: str, op_name: Any, inputs: Any, attrs: Any, *rest: Any) -> Any:
        if device and is_ours(device):
            outputs = run(device, tf.compat.as_str(op_name), inputs, attrs or ())
            if outputs is not None:
                return outputs
        return stock_execute(handle, device, op_name, inputs, attrs, *rest)

    execute._ipu_tf_hook = True  # type: ignore[attr-defined]
    _pywrap_tfe.TFE_Py_FastPathExecute, _pywrap_tfe.TFE_Py_Execute = fast, execute


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


def _check_places(function: Any, computes_there: Callable[[tf.Operation], bool]) -> None:
    """Refuses a function that the host is about to run although ops in it are placed on one of our devices."""
    place = getattr(function, "_ipu_tf_place", None)
    if place is None:
        operations = function.graph.get_operations()
        place = next((f"{o.name} on {o.device}" for o in operations if o.device and computes_there(o)), "")
        function._ipu_tf_place = place
    if place:
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"The function `{function.name.decode()}` places ops on an IPU ({place}), and it is called as a function "
            "of the host. Run it on the device: by IPUStrategy.run, or by ipu_compiler.compile within it.",
        )


def hook_control_flow(is_ours: Callable[[str], bool]) -> None:
    """Makes loops and branches on one of our devices such as can be lowered, also where TensorFlow 1's are asked for.

    A second call changes nothing.

    Args:
        is_ours: whether a device is one of ours, by its name.
    """
    stock = _control_flow_util.EnableControlFlowV2
    if getattr(stock, "_ipu_tf_hook", False):
        return

    @functools.wraps(stock)
    def enabled(graph: Any) -> bool:
        return bool(stock(graph)) or is_ours(current_device())

    enabled._ipu_tf_hook = True  # type: ignore[attr-defined]
    _control_flow_util.EnableControlFlowV2 = enabled


def hook_xla_compile(replace: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces `xla.compile` under each of its names by what `replace` makes of TensorFlow's own."""
    stock = _xla.compile
    if getattr(stock, "_ipu_tf_hook", False):
        return
    compile = functools.wraps(stock)(replace(stock))
    compile._ipu_tf_hook = True  # type: ignore[attr-defined]
    for module in (_xla, tf.xla.experimental, tf.compat.v1.xla.experimental, tf.compat.v2.xla.experimental):
        module.compile = compile


def hook_candidate_samplers(replace: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces the raw ops behind TensorFlow's samplers of classes. A second call changes nothing.

    Args:
        replace: from a sampler's name and TensorFlow's own raw op to what stands in its place.
    """
    for name in ("uniform_candidate_sampler", "log_uniform_candidate_sampler"):
        stock = getattr(_gen_candidate_sampling_ops, name)
        if not getattr(stock, "_ipu_tf_hook", False):
            sampler = functools.wraps(stock)(replace(name, stock))
            sampler._ipu_tf_hook = True  # type: ignore[attr-defined]
            setattr(_gen_candidate_sampling_ops, name, sampler)


def frozen(function: Any) -> Any:
    """A concrete function with the values that its variables have now in their places."""
    return _convert_to_constants.convert_variables_to_constants_v2(function)


def has_custom_calls(function: Any) -> bool:
    """Whether a concrete function uses markers of this project, which TensorFlow alone cannot run."""
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
