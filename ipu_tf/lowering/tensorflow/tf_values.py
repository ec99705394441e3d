"""Private API of TensorFlow for tensors, variables and iterators that this package uses.

If TensorFlow moves one of these, `tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.data.ops import iterator_ops as _iterator_ops
from tensorflow.python.distribute import device_util as _device_util
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import core as _core
from tensorflow.python.eager import record as _record
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import handle_data_util as _handle_data_util
from tensorflow.python.ops import resource_variable_ops as _resource_variable_ops

from ipu_tf.device.feeds.iterator_destruction import destroy_in_background
from ipu_tf.device.feeds.staging import ALIGNMENT
from ipu_tf.device.memory.residency import SMALL

ResourceVariable: Any = _resource_variable_ops.ResourceVariable
"""The class of what `tf.Variable(...)` makes."""
_NOT_COPIED = ("float8_e5m2", "float8_e4m3fn", "int4", "uint4")
"""Dtypes that TensorFlow's op `DeepCopy` has no kernel for."""


def tensor_memory(tensor: tf.Tensor) -> np.ndarray:
    """Returns a host tensor's memory as an array, without a copy."""
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
    """Context manager: TensorFlow executes eagerly on the host, also with TensorFlow 2's behaviour switched off."""
    with _context.eager_mode(), tf.device("/device:CPU:0"):
        yield


def tapes_record() -> bool:
    """Returns whether a gradient tape records in this thread."""
    return bool(_record.could_possibly_record())


def stock_iterator(dataset: tf.data.Dataset, tuned: bool = True) -> Any:
    """Returns TensorFlow's own iterator over a dataset, also where `iter(dataset)` is patched.

    Args:
        dataset: what to iterate over.
        tuned: whether TensorFlow tunes it, as it does by default: its destruction is then done in the background.
    """
    iterator = _iterator_ops.OwnedIterator(dataset)
    if tuned:
        destroy_iterator_in_background(iterator)
    return iterator


def destroy_iterator_in_background(iterator: Any) -> None:
    """Destroys the resource of a TensorFlow dataset iterator in a background thread; ignores other iterators."""
    if isinstance(iterator, _iterator_ops.OwnedIterator):
        destroy_in_background(iterator, iterator._iterator_resource)


_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


def element_reader(iterator: Any) -> Callable[[], tuple[np.ndarray, ...]] | None:
    """Returns a function that reads elements of TensorFlow's eager iterator as host arrays, without the cost of `next`.

    `next` makes a structure and asks for types and shapes each time, which takes longer than the read itself. The
    reader gives the tensors in the order of `tf.nest.flatten`, optionals left out, in any thread, whatever mode or
    device is chosen there; it raises `StopIteration` at the end.

    Returns:
        The reader, or None for other iterators, and for elements that consist of more than tensors. It may outlive the
        iterator: the iterator's resource is destroyed in the background after both.
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

    destroy_in_background(read, iterator._iterator_resource)
    return read


def type_number(dtype: tf.DType) -> int:
    """Returns TensorFlow's number of the dtype of a variable's value."""
    number: int = dtype.base_dtype.as_datatype_enum
    return number


def read_variables(variables: Sequence[tuple[tf.Tensor, int]]) -> Sequence[tf.Tensor]:
    """Reads eager variables in one op without copies, in any thread, mode and device scope.

    Args:
        variables: the handle of each, and the `type_number` of its dtype.
    """
    if not variables:
        return []
    handles, types = [handle for handle, _ in variables], tuple([number for _, number in variables])
    attributes, context = ("N", len(types), "dtypes", types), _context.context()._handle
    try:
        tensors: Sequence[tf.Tensor] = _pywrap_tfe.TFE_Py_Execute(
            context, _HOST, "_ReadVariablesOp", handles, attributes, len(types)
        )
    except _core._NotOkStatusException as error:
        raise _core._status_to_exception(error) from None
    return tensors


def share_reads(variable: tf.Tensor) -> None:
    """Makes reads of an eager variable share its memory again, after a sparse write on the host.

    TensorFlow copies a variable at each read from its first scatter on. The next scatter copies one that is shared.

    Args:
        variable: its handle.
    """
    try:
        _pywrap_tfe.TFE_Py_Execute(_context.context()._handle, _HOST, "DisableCopyOnRead", [variable], (), 0)
    except _core._NotOkStatusException as error:
        raise _core._status_to_exception(error) from None


def host_tensor(array: np.ndarray) -> tf.Tensor:
    """Converts an array to an eager tensor, which may share its memory: the array must not be changed."""
    context = _context.context()
    context.ensure_initialized()
    return _ops.EagerTensor(array, context.device_name, None)


def write_variables(variables: Sequence[tf.Variable], values: Sequence[np.ndarray]) -> None:
    """Assigns copies of values to eager variables, in any thread, mode and device scope."""
    with eager_mode():
        for variable, value in zip(variables, values, strict=True):
            # `Variable.assign` reads the variable as well, for a result.
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=_copy(value))


def _copy(value: np.ndarray) -> tf.Tensor:
    """Copies an array to an eager tensor: a large one to memory that a variable of its size freed, if possible.

    TensorFlow asks malloc for more than a tensor's bytes, so that it can align them, and so for new memory.
    """
    if value.nbytes <= SMALL or value.dtype.name in _NOT_COPIED:
        return host_tensor(np.array(value))
    block = _aligned_block(value)
    if block is None:
        return tf.raw_ops.DeepCopy(x=host_tensor(value))
    block[...] = value
    return host_tensor(block)


def _aligned_block(value: np.ndarray) -> np.ndarray | None:
    """Returns an array like this one where malloc has a block of just its bytes that TensorFlow can use; else None."""
    block = np.empty(value.shape, value.dtype)
    return block if block.ctypes.data % ALIGNMENT == 0 else None


def call_without_results(function: Any, arguments: Sequence[tf.Tensor]) -> None:
    """Calls a `ConcreteFunction` that returns nothing, in any thread, mode and device scope.

    A call of the function itself looks at each argument in Python: 8 ms for 500, and less than one here.

    Args:
        function: without captures.
        arguments: eager tensors, in its order.
    """
    types = tuple(argument.dtype.as_datatype_enum for argument in arguments)
    name = function.function_def.signature.name
    attributes = ("Tin", types, "Tout", (), "f", name, "config", "", "config_proto", b"", "executor_type", "")
    try:
        _pywrap_tfe.TFE_Py_Execute(
            _context.context()._handle, _HOST, "StatefulPartitionedCall", list(arguments), attributes, 0
        )
    except _core._NotOkStatusException as error:
        raise _core._status_to_exception(error) from None


def executing_eagerly() -> bool:
    """Returns whether ops are executed eagerly here, rather than added to a graph."""
    return _context.executing_eagerly()


def global_seed() -> int | None:
    """Returns the seed that `tf.random.set_seed` has set; None if there is none."""
    seed: int | None = _context.global_seed()
    return seed


def current_device() -> str:
    """Returns the device string of the current device scope; empty if there is none."""
    return _device_util.current()


def enclosing_device() -> str:
    """Returns the device string of the current device scope, else of the one that the function is traced in."""
    graph, device = tf.compat.v1.get_default_graph(), current_device()
    while not device and (graph := getattr(graph, "outer_graph", None)) is not None:
        with graph.as_default():
            device = current_device()
    return device


def inferred_shape(shape: Any) -> tf.TensorShape:
    """Returns what TensorFlow infers of a shape that may be computed, such as from slices of another tensor's shape."""
    return tf.fill(shape, 0.0).shape


def handle_spec(handle: tf.Tensor) -> tf.TensorSpec:
    """Returns shape and dtype of the variable behind a resource handle of a graph."""
    data = _handle_data_util.get_resource_handle_data(handle).shape_and_type[0]
    return tf.TensorSpec(tf.TensorShape(data.shape), tf.as_dtype(data.dtype))


def is_variable(handle: tf.Tensor) -> bool:
    """Returns whether a resource of a graph is a variable, rather than a table or an iterator."""
    data = _handle_data_util.get_resource_handle_data(handle)
    return len(data.shape_and_type) == 1


def read_handle(handle: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
    """Reads the variable of this shape and dtype behind a resource handle."""
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=spec.dtype)
    value.set_shape(spec.shape)
    return value


_READ_FIRST = "_ipu_read_first"


def is_variable_itself(value: Any) -> bool:
    """Returns whether an object is a variable, rather than an assignment's result."""
    return isinstance(value, tf.Variable) and not isinstance(value, _resource_variable_ops._UnreadVariable)


def read_first(variable: tf.Variable) -> tf.Tensor:
    """Reads a variable's value from before the function graph being built changes it."""
    with tf.control_dependencies(None):
        value = read_handle(variable.handle, tf.TensorSpec(variable.shape, variable.dtype))
    value.op._set_attr(_READ_FIRST, tf.compat.v1.AttrValue(b=True))
    return value


def order_first_reads(graph: Any) -> None:
    """Orders the reads by `read_first` before every assignment, once a function graph is complete."""
    for read in [operation for operation in graph.get_operations() if _READ_FIRST in operation.node_def.attr]:
        read._remove_all_control_inputs()
        changes = [consumer for consumer in read.inputs[0].consumers() if consumer.type != read.type]
        for change in changes:
            change._add_control_input(read)


def assign_handle(handle: tf.Tensor, value: tf.Tensor) -> tf.Operation:
    """Assigns to the variable behind a resource handle."""
    return tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def variable_of(handle: tf.Tensor) -> tf.Variable | None:
    """Returns a new object of the variable behind an eager resource handle; None for other resources."""
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


def dataset_variant(dataset: tf.data.Dataset) -> tf.Tensor:
    """Returns the variant tensor of a dataset."""
    return dataset._variant_tensor


def create_optimizer_variables(optimizer: Any, variables: Sequence[Any]) -> None:
    """Creates an optimizer's variables ahead of use inside of a branch, where they cannot be created.

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


def is_reference(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor is of a reference dtype: the memory of a non-resource variable."""
    return bool(tensor.dtype._is_ref_dtype)
