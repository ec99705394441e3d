"""Embedded runtime: serves the executable files that `application_compile_op` writes, one request at a time.

A program is started once and called for each request:

    embedded_runtime_start(file, inputs, name) ──► context
    embedded_runtime_call(element, context)    ──► outputs
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._state.registry import register_state
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.files.embedded_engine import EmbeddedEngine
from ipu_tf.device.files.executable_about import Signature, Tensor
from ipu_tf.device.files.executable_reading import about_text, digest_of, read
from ipu_tf.emulation import record_ignored
from ipu_tf.lowering.programs.tensorflow_errors import to_tensorflow_error
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.host_op import host_op

_lock = threading.Lock()
_engines: dict[str, tuple[str, bytes, EmbeddedEngine]] = register_state("programs of the embedded runtime", {})


class RuntimeContext:
    """A program that was started. Made by `embedded_runtime_start`, not directly.

    Args:
        name: of the instance.
        signature: what the program takes and gives.
        start_output: what starting it gave.
    """

    def __init__(self, name: str, signature: Signature, start_output: tf.Tensor) -> None:
        self._name = name
        self._signature = signature
        self._start_output = start_output

    def start_output(self) -> tf.Tensor:
        """The result of the op that starts the program; calls depend on it."""
        return self._start_output

    def name(self) -> str:
        """The name of the instance."""
        return self._name

    def signature(self) -> Signature:
        """Signature of the program: `inputs`, `streamed_inputs`, `outputs` and `streamed_outputs`."""
        return self._signature

    def output_types(self) -> list[tf.DType]:
        """Dtypes of a call's outputs."""
        return [tf.as_dtype(tensor.dtype) for tensor in self._signature.streamed_outputs]


def embedded_runtime_start(executable_file: Any, inputs: Any, name: str, timeout: int | None = None) -> RuntimeContext:
    """Starts a program from a file. In a graph, it starts when the first call runs.

    An instance lives as long as the process; starting the same file under the same name again gives the same instance.

    Args:
        executable_file: its path, a string or a scalar string tensor whose value is known now.
        inputs: the program's `inputs` in order, or a dictionary by their names: tensors or arrays.
        name: of the instance.
        timeout: microseconds to wait for further elements; recorded, without effect: every call is answered at once.

    Raises:
        Exception: if the inputs are not those that the program wants.
        FileNotFoundError: if there is no such file.
        ForeignFile: if the file is not of this project's format: a popef for instance, which only an IPU can run.
        DamagedFile: if the file is not as it was written.
        UnsafeProgram: if it calls native functions other than those that this project's programs call.
        tf.errors.AlreadyExistsError: if an instance of that name runs another file; in a graph, when it is started.
    """
    if timeout is not None:
        record_ignored("embedded_runtime_start.timeout", timeout)
    path = _path(executable_file)
    signature = read(path).signature
    values = _checked_inputs(inputs, signature)
    return RuntimeContext(name, signature, start_op(values, path, name))


def embedded_runtime_call(inputs: Sequence[Any], context: RuntimeContext) -> list[tf.Tensor]:
    """Runs a program on one element and returns its output.

    Args:
        inputs: the tensors of the program's `streamed_inputs`.
        context: from `embedded_runtime_start`.

    Returns:
        The tensors of the program's `streamed_outputs`.

    Raises:
        Exception: for a wrong number of inputs, or a wrong shape.
        TypeError: for a wrong dtype.
    """
    wanted = context.signature().streamed_inputs
    if len(inputs) != len(wanted):
        raise Exception(f"Embedded application call expects {len(wanted)} inputs, but {len(inputs)} were provided.")
    values = [
        _checked(i, value, tensor, TypeError) for i, (value, tensor) in enumerate(zip(inputs, wanted, strict=True))
    ]
    return call_op(values, context.start_output(), _specs(context.signature().streamed_outputs), context.name())


def embedded_runtime_stop(context: RuntimeContext) -> None:
    """Not supported: an instance lives as long as the process.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("Embedded runtime doesn't support stopping an engine.")


def embedded_runtime_start_and_call(
    executable_file: Any, startup_inputs: Any, call_inputs: Sequence[Any], name: str
) -> tuple[list[tf.Tensor], RuntimeContext]:
    """Starts a program and runs it on its first element; see `embedded_runtime_start` and `embedded_runtime_call`."""
    context = embedded_runtime_start(executable_file, startup_inputs, name)
    return embedded_runtime_call(call_inputs, context), context


def start_op(inputs: Sequence[Any], path: str, name: str) -> tf.Tensor:
    """Starts an instance: eagerly, or by the op that it returns, on which calls depend."""

    def start(*values: np.ndarray) -> list[np.ndarray]:
        _start(path, values, name)
        return [np.array(0, np.int32)]

    return _op(start, inputs, [tf.TensorSpec([], tf.int32)], f"{_word(name)}_start")[0]


def call_op(inputs: Sequence[Any], anchor: tf.Tensor, outputs: Sequence[tf.TensorSpec], name: str) -> list[tf.Tensor]:
    """Calls an instance: eagerly, or by the ops that it returns."""

    def call(_: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
        try:
            return _engines[name][2].call(values)
        except DeviceError as error:
            raise to_tensorflow_error(error) from error.__cause__

    return _op(call, [anchor, *inputs], outputs, f"{_word(name)}_call")


def _op(function: Any, inputs: Sequence[Any], outputs: Sequence[tf.TensorSpec], name: str) -> list[tf.Tensor]:
    with tf.device("/device:CPU:0"):
        tensors = [tf.convert_to_tensor(value) for value in inputs]
        if tf_values.executing_eagerly():
            return [tf.convert_to_tensor(array) for array in function(*(np.array(tensor) for tensor in tensors))]
        return host_op(function, tensors, outputs, name).results


def _start(path: str, inputs: Sequence[np.ndarray], name: str) -> None:
    digest = digest_of(path)
    with _lock:
        running = _engines.get(name)
        if running is None:
            _engines[name] = (path, digest, EmbeddedEngine(read(path), inputs))
        elif running[1] != digest:
            raise tf.errors.AlreadyExistsError(
                None,
                None,
                f"An embedded runtime of the name '{name}' runs '{running[0]}', which is not the program in '{path}'. "
                "Give each program a name of its own.",
            )


def _find_opaque_blob(filename_tensor: Any) -> bytes:
    """Returns a file's description of its program, as JSON; Graphcore's tests use this name."""
    return about_text(_path(filename_tensor))


def _path(file: Any) -> str:
    """The path that a string or a tensor holds."""
    if isinstance(file, (str, bytes, os.PathLike)):
        return os.fsdecode(file)
    value = tf.get_static_value(file) if isinstance(file, tf.Tensor) else file
    if value is None:
        with tf.compat.v1.Session(graph=file.graph) as session:
            value = session.run(file)
    if isinstance(value, np.ndarray):
        value = value.item()
    return os.fsdecode(value)


def _checked_inputs(inputs: Any, signature: Signature) -> list[Any]:
    wanted = signature.inputs
    if isinstance(inputs, Mapping):
        for tensor in wanted:
            if inputs.get(tensor.name) is None:
                raise Exception(f"Failed to find input tensor with name '{tensor.name}' in input dictionary.")
        inputs = [inputs[tensor.name] for tensor in wanted]
    if isinstance(inputs, tuple):
        inputs = list(inputs)
    if not isinstance(inputs, list):
        raise Exception("Expected the inputs to be a list.")
    if len(inputs) != len(wanted):
        raise Exception(f"Embedded application runtime expects {len(wanted)} inputs, but {len(inputs)} were provided.")
    return [_checked(i, value, tensor, Exception) for i, (value, tensor) in enumerate(zip(inputs, wanted, strict=True))]


def _checked(index: int, value: Any, wanted: Tensor, wrong_dtype: type[Exception]) -> Any:
    """An input, if it has the shape and dtype that the program was compiled for."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        value = tf.convert_to_tensor(value)
    where = f"at position {index} ('{wanted.name}')"
    if list(value.shape) != list(wanted.shape):
        raise Exception(
            f"Mismatched input shape {where}. Expected {list(wanted.shape)}, but input {index} has shape "
            f"{list(value.shape)}."
        )
    expected = tf.as_dtype(wanted.dtype)
    if tf.as_dtype(value.dtype) != expected:
        raise wrong_dtype(
            f"Mismatched input dtype {where}. Expected {expected}, but input {index} has dtype {value.dtype}."
        )
    return value


def _specs(tensors: Sequence[Tensor]) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(tensor.shape, tf.as_dtype(tensor.dtype)) for tensor in tensors]


def _word(name: str) -> str:
    """A name that TensorFlow takes for an op."""
    return "".join(c if c.isalnum() else "_" for c in name).lstrip("_") or "embedded_runtime"
