"""Helpers of Graphcore's ops: activation names, accumulator dtypes, gradient accumulation, resource updates."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._training.accumulation import accumulated, current_accumulation_count, on_update
from ipu_tf.emulation import EmulationError, record_ignored

_UNDEFINED, _ON, _OFF = "THREESTATE_UNDEFINED", "THREESTATE_ON", "THREESTATE_OFF"


def get_activation_name(identifier: str | Callable[..., Any]) -> str:
    """The name of an activation function.

    Args:
        identifier: a name, given back as it is, or a function of TensorFlow or Keras.

    Raises:
        TypeError: for functions of other modules, and for anything else.

    Example:
        >>> import tensorflow as tf
        >>> get_activation_name(tf.keras.activations.sigmoid)
        'sigmoid'
    """
    if isinstance(identifier, str):
        return identifier
    if not callable(identifier):
        raise TypeError(f"Could not interpret activation function identifier: {identifier!r}")
    module, name = getattr(identifier, "__module__", "?"), getattr(identifier, "__name__", type(identifier).__name__)
    if str(module).partition(".")[0] not in ("tensorflow", "keras", "tf_keras"):
        raise TypeError(f"Unrecognized function : {module}.{name}")
    return name


def bool_to_three_state(value: bool | None, default: str | None = None) -> str:
    """`THREESTATE_ON` or `THREESTATE_OFF`; for None the default, or `THREESTATE_UNDEFINED` without one.

    Example:
        >>> bool_to_three_state(True), bool_to_three_state(None)
        ('THREESTATE_ON', 'THREESTATE_UNDEFINED')
    """
    if value is None:
        return default or _UNDEFINED
    return _ON if value else _OFF


def get_accumulator_dtype(variable: Any, dtype_override: Any) -> tf.DType:
    """The dtype in which something is accumulated.

    Args:
        variable: a variable or tensor.
        dtype_override: None for the variable's own dtype, a dtype, or a function from the variable to one of these.

    Raises:
        TypeError: if the override is none of these.

    Example:
        >>> import tensorflow as tf
        >>> get_accumulator_dtype(tf.constant(1.0), lambda variable: tf.float16)
        tf.float16
    """
    if dtype_override is None:
        return variable.dtype
    # A DType can be called, too.
    if isinstance(dtype_override, tf.DType) or not callable(dtype_override) or isinstance(dtype_override, type):
        return tf.as_dtype(dtype_override)
    found = dtype_override(variable)
    return variable.dtype if found is None else tf.as_dtype(found)


def accumulate_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    gradient_accumulation_dtype: Any,
    accum_scale: float = 1.0,
    grad_scale: Any = None,
    create_accumulator_from_shape: bool = False,
) -> list[tuple[Any, Any]]:
    """Gradients accumulated over the micro-batches of an update, inside a pipeline or an accumulating optimizer's loop.

    Args:
        grads_and_vars: gradients of one micro-batch with their variables; a None gradient stays one.
        gradient_accumulation_dtype: as `get_accumulator_dtype` takes it.
        accum_scale: by what the accumulator is multiplied first; only 1 is supported.
        grad_scale: by what each gradient is multiplied first.
        create_accumulator_from_shape: without effect in emulation.

    Returns:
        The pairs with what was accumulated in place of the gradients. Where no number of micro-batches is known, an
        update has one.

    Raises:
        EmulationError: for another `accum_scale`.
    """
    if not np.array_equal(tf.get_static_value(accum_scale), 1.0):
        raise EmulationError(
            f"accumulate_gradients keeps sums as they are. Received: accum_scale={accum_scale}. For a running mean use "
            "`pipelining_ops.pipeline` or `GradientAccumulationOptimizerV2` with a reduction_method."
        )
    record_ignored("accumulate_gradients.create_accumulator_from_shape", create_accumulator_from_shape or None)
    count = current_accumulation_count() or 1

    def sum_of(gradient: Any, variable: Any) -> Any:
        dtype = get_accumulator_dtype(variable, gradient_accumulation_dtype).base_dtype
        scaled = gradient if grad_scale is None else gradient * tf.cast(grad_scale, gradient.dtype)
        return tf.cast(scaled, dtype) if count == 1 else accumulated(scaled, count, dtype=dtype)

    return [(None if g is None else sum_of(tf.convert_to_tensor(g), v), v) for g, v in grads_and_vars]


def create_resource_update(
    fn: Callable[[Any], Any],
    name: str,
    control_outputs: Sequence[tf.Operation],
    offload_weight_update_variables: bool | None,
    replicated_optimizer_state_sharding: bool,
    gradient_accumulation_count: Any,
) -> tf.Operation:
    """Calls a function once for every `gradient_accumulation_count` iterations of the loop it is in.

    Args:
        fn: takes the count and changes variables.
        name: for the ops.
        control_outputs: operations that come before it.
        offload_weight_update_variables: recorded, without effect.
        replicated_optimizer_state_sharding: recorded, without effect.
        gradient_accumulation_count: iterations to an update: an `int`, or an `int32[]` tensor.
    """
    record_ignored("create_resource_update.offload_weight_update_variables", offload_weight_update_variables)
    sharded = replicated_optimizer_state_sharding or None
    record_ignored("create_resource_update.replicated_optimizer_state_sharding", sharded)
    with tf.name_scope(name), tf.control_dependencies(list(control_outputs)):
        return on_update(gradient_accumulation_count, lambda: fn(gradient_accumulation_count)).op


@contextlib.contextmanager
def gradient_override_scope(training: bool) -> Iterator[None]:
    """A scope without effect: on an IPU it marks for the compiler which matrix products belong to which pass.

    Args:
        training: whether the graph within is a training graph.
    """
    yield
