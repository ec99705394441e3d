"""Runs eager ops placed on `/device:IPU:<n>` as device programs, one program for each op."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._sessions import eager_variables
from ipu_tf._state.once import first_time
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private
from ipu_tf.lowering.tensorflow.session_graph import MOVING, OF_THE_HOST, say_on_host

#: What lives on the host: an op that takes or gives one is the host's, or is refused.
_HANDLES = frozenset({tf.resource, tf.variant})
_INDICES = {dtype.as_datatype_enum for dtype in (tf.int8, tf.int16, tf.int32, tf.int64)}
#: Elements that an input may have to become part of a program.
_LARGEST_KNOWN = 16
#: In a step that runs eagerly, whole numbers up to this many are computed on the host, as TensorFlow does for GPUs.
_SMALL = 64
#: They give shapes, and compute nothing.
_SHAPES = frozenset({"Rank", "Shape", "ShapeN", "Size", "VariableShape"})
_log = logging.getLogger("ipu_tf")
_RUN_IT = "Run it on the device: by IPUStrategy.run, or by ipu_compiler.compile."

variables_on_host: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_variables_on_host", default=False)
"""Whether ops may read and write variables: in a step that runs eagerly."""


def run(device: str, op_type: str, inputs: Sequence[tf.Tensor], attributes: Sequence[Any]) -> Any:
    """Runs an op on an emulated IPU.

    Args:
        device: the device, `/device:IPU:<n>`.
        op_type: the op's type.
        inputs: its tensors, eager ones.
        attributes: names and values of its attributes, in turn.

    Returns:
        Its output tensors; None for an op that only moves data, or belongs to the host wherever it is placed.

    Raises:
        tf.errors.InvalidArgumentError: for a function, for an op that updates a variable, and for one that IPUs have
            not.
        tf.errors.FailedPreconditionError: if no device is configured.
    """
    definition = tf_graphs.op_definition(op_type)
    if definition is None:
        raise _refused(op_type, device, f"A function is not run by its ops. {_RUN_IT}")
    if op_type in MOVING or op_type in OF_THE_HOST or _takes_strings(op_type, inputs):
        return None
    if variables_on_host.get():
        values = dict(zip(attributes[::2], attributes[1::2], strict=True))
        if op_type in eager_variables.COMPUTING:
            return eager_variables.run(op_type, inputs, values)
        if _is_for_host(op_type, definition, inputs, values):
            return None
    if not tf_private.compiles(op_type):
        raise _refused(op_type, device, "It cannot be compiled for an IPU. Run it on the host.")
    if any(tensor.dtype in _HANDLES for tensor in inputs):
        raise _refused(op_type, device, f"It works on a variable or another handle. {_RUN_IT}")
    # Only now: this module is imported together with TensorFlow, which is slow enough.
    from ipu_tf._training.replication import target
    from ipu_tf.ipu_strategy import device_ordinal

    fixed = _needs_constant(definition, inputs, dict(zip(attributes[::2], attributes[1::2], strict=True)))
    signature = tuple(
        _EagerInput(tensor.numpy().tobytes(), tuple(tensor.shape), tensor.dtype) if is_fixed else _spec(tensor)
        for tensor, is_fixed in zip(inputs, fixed, strict=True)
    )
    function = _device_function(op_type, tuple(map(_hashable, attributes)), signature, target(device_ordinal(device)))
    return function([tensor for tensor, is_fixed in zip(inputs, fixed, strict=True) if not is_fixed])


def _takes_strings(op_type: str, inputs: Sequence[tf.Tensor]) -> bool:
    """Returns whether an op takes strings, which no IPU has; logs once that it runs on the host."""
    found = any(tensor.dtype == tf.string for tensor in inputs)
    if found:
        say_on_host(op_type)
    return found


def _is_for_host(op_type: str, definition: Any, inputs: Sequence[tf.Tensor], values: dict[str, Any]) -> bool:
    """Returns whether an op of an eager step is the host's: about shapes, small indices, or what is no tensor."""
    if op_type in _SHAPES:
        return True
    if any(tensor.dtype in _HANDLES for tensor in inputs):
        if first_time("eager op on the host", op_type):
            _log.warning("ipu_tf: run_eagerly: %s works on what is no tensor, and runs on the host.", op_type)
        return True
    if definition.is_stateful or "Random" in op_type or not inputs:
        return False
    whole = (*_INDICES, tf.bool.as_datatype_enum)
    given = all(t.dtype.as_datatype_enum in whole and t.shape.num_elements() <= _SMALL for t in inputs)
    return given and all(_output_dtype(argument, values) in whole for argument in definition.output_arg)


def _output_dtype(argument: Any, values: dict[str, Any]) -> int | None:
    if not argument.type_attr:
        return argument.type or None
    value = values.get(argument.type_attr)
    return None if value is None else tf.as_dtype(value).as_datatype_enum


@dataclasses.dataclass(frozen=True)
class _EagerInput:
    """An input that is part of a program."""

    memory: bytes
    shape: tuple[int, ...]
    dtype: tf.DType

    def constant(self) -> tf.Tensor:
        return tf.constant(np.frombuffer(self.memory, self.dtype.as_numpy_dtype).reshape(self.shape), self.dtype)


@functools.lru_cache(maxsize=2048)
def _device_function(
    op_type: str, attributes: tuple[Any, ...], signature: tuple[tf.TensorSpec | _EagerInput, ...], target: Target
) -> Any:
    """Builds the program of an op for inputs of these shapes, the constant ones excluded."""
    from ipu_tf.lowering.programs.device_function import DeviceFunction

    definition = tf_graphs.op_definition(op_type)
    values = dict(zip(attributes[::2], attributes[1::2], strict=True))

    def op(*given: tf.Tensor) -> Any:
        waiting = iter(given)
        inputs = [known.constant() if isinstance(known, _EagerInput) else next(waiting) for known in signature]
        return tf_graphs.add_op(op_type, _arguments(definition, inputs, values))

    traced = tf.function(op, autograph=False, jit_compile=True)
    specs = [known for known in signature if not isinstance(known, _EagerInput)]
    return DeviceFunction(traced.get_concrete_function(*specs), target)


def _needs_constant(definition: Any, inputs: Sequence[tf.Tensor], values: dict[str, Any]) -> list[bool]:
    """Returns which inputs are shapes, axes or indices, which XLA needs as constants."""
    attributes = {attribute.name: attribute for attribute in definition.attr}
    found: list[bool] = []
    for argument in definition.input_arg:
        count = len(_listed(argument, values)) if argument.number_attr or argument.type_list_attr else 1
        found += [_is_index(argument, attributes)] * count
    return [
        is_index and tensor.shape.num_elements() <= _LARGEST_KNOWN
        for is_index, tensor in zip(found, inputs, strict=True)
    ]


def _is_index(argument: Any, attributes: dict[str, Any]) -> bool:
    if not argument.type_attr:
        return argument.type in _INDICES
    attribute = attributes[argument.type_attr]
    allowed = set(attribute.allowed_values.list.type)
    return attribute.default_value.type == tf.int32.as_datatype_enum or (bool(allowed) and allowed <= _INDICES)


def _spec(tensor: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _listed(argument: Any, values: dict[str, Any]) -> Sequence[Any]:
    """One item for each tensor of an input that is a list."""
    return range(values[argument.number_attr]) if argument.number_attr else values[argument.type_list_attr]


def _arguments(definition: Any, inputs: Sequence[tf.Tensor], values: dict[str, Any]) -> dict[str, Any]:
    """The op's inputs by name, lists of them put together again, with the attributes that are not theirs."""
    waiting = iter(inputs)
    arguments: dict[str, Any] = {}
    theirs: set[str] = set()
    for argument in definition.input_arg:
        theirs |= {argument.type_attr, argument.number_attr, argument.type_list_attr}
        arguments[argument.name] = _taken(waiting, argument, values)
    return arguments | {name: value for name, value in values.items() if name not in theirs}


def _taken(waiting: Iterator[tf.Tensor], argument: Any, values: dict[str, Any]) -> Any:
    if argument.number_attr or argument.type_list_attr:
        return [next(waiting) for _ in _listed(argument, values)]
    return next(waiting)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _refused(op_type: str, device: str, why: str) -> tf.errors.InvalidArgumentError:
    return tf.errors.InvalidArgumentError(None, None, f"{op_type} cannot be run eagerly on {device}. {why}")
