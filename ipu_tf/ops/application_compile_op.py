"""Compiles a function into an executable file for `embedded_runtime`."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._tracing.unconverted import do_not_convert
from ipu_tf._training.replication import target, target_of, traced_for
from ipu_tf.device.files.executable_file import SUFFIX, ExportError, write
from ipu_tf.emulation import EmulationError
from ipu_tf.lowering.programs.graph_op import GraphProgram
from ipu_tf.lowering.programs.program_file import Parameter, program_contents
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private, tf_values
from ipu_tf.lowering.tensorflow.host_op import host_op
from ipu_tf.lowering.tensorflow.refusal import check_variables
from ipu_tf.lowering.tensorflow.trace import lower

_PREFIX = "XLA_Args/"


@do_not_convert
def experimental_application_compile_op(
    func: Callable[..., Any],
    inputs: Any = None,
    output_path: str | os.PathLike[str] | None = None,
    freeze_variables: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Compiles a function for `/device:IPU:0` into a file, and does not run it.

    The file is of this project's own open format, whatever its name; no IPU can run it.

    Args:
        func: takes one tensor an input and gives tensors, then operations that have to run; or a `tf.function`.
        inputs: tensors, or what converts to them. Constants, and in eager mode all of them, become part of the file;
            others are inputs of whoever starts the program.
        output_path: where to write the file; by default a temporary one.
        freeze_variables: whether variables that the function uses become part of the file with the values that they
            have when it is compiled. Otherwise they are inputs of whoever starts the program.
        name: for the op.

    Returns:
        The path, a scalar of dtype string. In a graph, the function is compiled whenever that is computed.

    Raises:
        TypeError: if the function cannot be called with these inputs.
        EmulationError: if the program cannot be kept in a file: it calls back to the host or has several replicas. In
            a graph, when the op runs; as the following.
        tf.errors.NotFoundError: if the file cannot be written.
        tf.errors.InvalidArgumentError: for a dtype that the device has not.
        tf.errors.FailedPreconditionError: if no device is configured.

    Example:
        >>> import tensorflow as tf
        >>> import ipu_tf as ipu
        >>> config = ipu.config.IPUConfig()
        >>> config.auto_select_ipus = 1
        >>> config.configure_ipu_system()
        >>> path = ipu.application_compile_op.experimental_application_compile_op(lambda x: x * x, [[1.0, 2.0]])
        >>> path.numpy().decode().endswith(".ipu_exec")
        True
    """
    name = name or "application_compile"
    path = os.fspath(output_path) if output_path is not None else _temporary(name)
    arguments = list(inputs) if isinstance(inputs, (list, tuple)) else [] if inputs is None else [inputs]
    _check_arguments(func, arguments)
    computation = _Computation(func)
    with tf.device("/device:CPU:0"):
        tensors = [tf.convert_to_tensor(value) for value in arguments]
        if tf_values.executing_eagerly():
            _compile_eagerly(computation, tensors, path, freeze_variables, None)
            return tf.constant(path)
        return _compile_op(computation, tensors, path, freeze_variables, name)


@do_not_convert
def compile_one_replica(func: Callable[[], Any], output_path: str) -> None:
    """Compiles a function without inputs, in eager mode, as `experimental_application_compile_op` does.

    Variables are frozen, and the program is one replica, however many the device has room for: a service answers each
    call once.
    """
    with tf.device("/device:CPU:0"):
        _compile_eagerly(_Computation(func), [], output_path, True, 1)


class _Computation:
    """Function that returns tensors, with its operations as control dependencies.

    Attributes:
        outputs: how many tensors the function gives; where it gives none, there is a dummy.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.outputs = 0

    def __call__(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        results = [leaf for leaf in tf.nest.flatten(self._function(*inputs)) if leaf is not None]
        operations = [result for result in results if isinstance(result, tf.Operation)]
        tensors = [tf.convert_to_tensor(result) for result in results if not isinstance(result, tf.Operation)]
        self.outputs = len(tensors)
        with tf.control_dependencies(operations):
            return [tf.identity(tensor) for tensor in tensors or [tf.constant(0)]]


def _compile_eagerly(
    computation: _Computation, tensors: Sequence[tf.Tensor], path: str, freeze: bool, replicas: int | None
) -> None:
    function = tf.function(lambda: computation(*tensors), autograph=False, jit_compile=True)
    with traced_for(0):
        concrete = tf_private.concrete_function(function)
    lowered = lower(concrete)
    parameters = [
        Parameter(_PREFIX + capture.name.removesuffix(":0"), capture.numpy() if freeze else None)
        if isinstance(capture, tf.Variable)
        else Parameter(f"constant_{index}", np.array(tf_values.tensor_memory(capture)))
        for index, capture in enumerate(lowered.captures)
    ]
    where = target_of(0, concrete.graph)
    where = dataclasses.replace(where, replicas=replicas or where.replicas)
    _write(path, lambda: program_contents(lowered, parameters, where, computation.outputs))


def _compile_op(
    computation: _Computation, tensors: Sequence[tf.Tensor], path: str, freeze: bool, name: str
) -> tf.Tensor:
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    with _resource_variables(), traced_for(0):
        graph = tf_private.trace_in_graph(name, computation, specs)
    captured = list(zip(graph.external_captures, graph.internal_captures, strict=True))
    handles = [pair for pair in captured if pair[0].dtype == tf.resource]
    values = [pair for pair in captured if pair[0].dtype != tf.resource]
    check_variables(name, handles)
    program = GraphProgram(graph, [inner for _, inner in values], [inner for _, inner in handles], _target)
    outer = [*tensors, *(tensor for tensor, _ in values)]
    states = [tf_values.read_handle(handle, tf_values.handle_spec(inner)) for handle, inner in handles]

    def compile_now(*arrays: np.ndarray) -> list[np.ndarray]:
        given, held = arrays[: len(outer)], arrays[len(outer) :]
        lowered, order = program.lowered(given, held)
        parameters = [
            Parameter(_PREFIX + tensor.op.name, value if _is_constant(tensor, freeze) else None)
            for tensor, value in zip(outer, given, strict=True)
        ]
        parameters += [Parameter(_PREFIX + handles[i][0].op.name, held[i] if freeze else None) for i in order]
        where = program.target()
        _write(path, lambda: program_contents(lowered, parameters, where, computation.outputs))
        return [np.array(path.encode())]

    return host_op(compile_now, [*outer, *states], [tf.TensorSpec([], tf.string)], name).results[0]


@contextlib.contextmanager
def _resource_variables() -> Iterator[None]:
    """Context in which `tf.compat.v1.get_variable` makes resource variables."""
    before = tf.compat.v1.get_variable_scope().use_resource
    tf.compat.v1.get_variable_scope().set_use_resource(True)
    try:
        yield
    finally:
        tf.compat.v1.get_variable_scope().set_use_resource(before)


def _target(shards: int) -> Target:
    return target(0, shards)


def _is_constant(tensor: tf.Tensor, freeze: bool) -> bool:
    return isinstance(tensor, tf_graphs.EagerTensor) or tensor.op.type in (
        ("Const", "ReadVariableOp") if freeze else ("Const",)
    )


def _write(path: str, contents: Callable[[], bytes]) -> None:
    try:
        write(path, contents())
    except ExportError as error:
        raise EmulationError(str(error)) from error
    except OSError as error:
        raise tf.errors.NotFoundError(None, None, f"Failed to open file for writing: {error}") from error


def _temporary(name: str) -> str:
    descriptor, path = tempfile.mkstemp(SUFFIX, f"{os.path.basename(name)}_")
    os.close(descriptor)
    return path


def _check_arguments(function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Raises Python's own error where a `tf.function` cannot be called with these arguments."""
    plain = getattr(function, "python_function", None)
    if plain is None:
        return
    try:
        inspect.signature(plain).bind(*arguments)
    except TypeError:
        plain(*arguments)
