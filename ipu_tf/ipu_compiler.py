"""`compile`: compiles a function into one device program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._state.trace_lock import TRACE_LOCK
from ipu_tf._tracing.construction_errors import deferring, raise_first_error
from ipu_tf._tracing.unconverted import do_not_convert
from ipu_tf._training.replication import target, target_of, traced_for
from ipu_tf.device.run.interruptible_call import InterruptibleCall
from ipu_tf.ipu_strategy import device_ordinal
from ipu_tf.lowering.programs.graph_op import embed
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.programs.taped_function import TapedFunction
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private, tf_values

_NOT_ON_IPU = """  A computation has been compiled, however it was not placed on an IPU device. This computation \
will not be executed on an IPU.
  To fix this, call `compile` inside `with ipu_scope('/device:IPU:0'):`."""
_ESTIMATOR_SPEC = """  Your computation output contains an EstimatorSpec or IPUEstimatorSpec object.
  When you use an IPUEstimator, it already handles all the xla compilation
  and no manual call to compile() is needed.
"""


@do_not_convert
def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """Compiles a computation into one program for the device.

    In a graph (TF1, or inside a `tf.function`) the results are tensors of the graph; the program runs whenever they
    are computed. In eager mode it runs at once.

    Args:
        computation: takes one tensor an input and gives tensors, then operations that have to run.
        inputs: tensors, or what converts to them.

    Returns:
        A list of tensors, also for a single one, nested as the computation's; an operation if it gives no tensors.

    Raises:
        Exception: outside an `ipu_scope`, unless the computation consists of no-ops in a graph.
        TypeError: for `inputs` that are no list and no tuple, or a computation that is no function.
        ValueError: if the computation gives operations before tensors, or an estimator's spec.
        tf.errors.FailedPreconditionError: when it runs, if no device is configured.

    Example:
        >>> import tensorflow as tf
        >>> import ipu_tf as ipu
        >>> config = ipu.config.IPUConfig()
        >>> config.auto_select_ipus = 1
        >>> config.configure_ipu_system()
        >>> with ipu.scopes.ipu_scope("/device:IPU:0"):
        ...     [product] = ipu.ipu_compiler.compile(lambda a, b: a * b, [2.0, 3.0])
        >>> float(product)
        6.0
    """
    if not callable(computation):
        raise TypeError(f"`computation` must be a function. Received: {computation!r}.")
    if not isinstance(inputs, (list, tuple, type(None))):
        raise TypeError(f"`inputs` must be a list or tuple of tensors, or None. Received: {inputs!r}.")
    with tf.device("/device:CPU:0"):
        tensors = [tf.convert_to_tensor(value) for value in inputs or []]
    device = tf_values.current_device()
    name = getattr(computation, "__name__", "computation").strip("<>_") or "computation"
    parts = _Parts(computation)
    if tf_values.executing_eagerly():
        function = tf.function(parts, autograph=False, jit_compile=True)
        with InterruptibleCall():
            return parts.packed(_lowered(function, tensors, device)(tensors), None)
    # TensorFlow makes the variables of a nested graph in the innermost graph that was entered, else eagerly.
    with _resource_variables(), tf.compat.v1.get_default_graph().as_default(), deferring() as errors:

        def before(shards: int) -> Target:
            raise_first_error(errors)
            return target(_checked_ordinal(parts.device_within(device)), shards)

        with _traced_on(device):
            embedded = embed(parts, tensors, name, before)
    if not _is_ipu(parts.device_within(device)):
        return _on_no_device(parts)
    return parts.packed(embedded.outputs, embedded.operation)


def _lowered(function: Any, tensors: Sequence[tf.Tensor], device: str) -> TapedFunction:
    with TRACE_LOCK:
        with _traced_on(device):
            specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
            concrete = tf_private.concrete_function(function, *specs)
        return TapedFunction(concrete, target_of(_checked_ordinal(device), concrete.graph))


class _Parts:
    """A computation as a function from tensors to tensors, its operations hung onto them."""

    def __init__(self, computation: Callable[..., Any]) -> None:
        self._computation = computation
        self._structure: list[Any] = []
        self._inner_devices: list[str] = []
        self.computes = False

    def __call__(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        results = self._computation(*inputs)
        results = [] if results is None else list(results) if isinstance(results, (list, tuple)) else [results]
        if _has_estimator_spec(results):
            raise ValueError(_ESTIMATOR_SPEC)
        results = [result for result in results if result is not None]
        operations = [result for result in results if isinstance(result, tf.Operation)]
        self._structure = results[: len(results) - len(operations)]
        tensors = [_result(leaf) for leaf in tf.nest.flatten(self._structure) if leaf is not None]
        if any(isinstance(tensor, tf.Operation) for tensor in tensors):
            raise ValueError(
                "A compiled computation must return zero or more Tensors followed by zero or more Operations."
            )
        graph = tf.compat.v1.get_default_graph()
        made = graph.get_operations()
        self._inner_devices = [*(operation.device for operation in made), *tf_graphs.devices_in_functions(graph)]
        self.computes = any(operation.type not in ("NoOp", "Placeholder") for operation in made)
        with tf.control_dependencies(operations):
            # A computation of operations only gives a dummy for them to hang on.
            return [tf.identity(tensor) for tensor in tensors or [tf.constant(0)]]

    def device_within(self, outer: str) -> str:
        """The device of the program: that of the scope around it, or the IPU that its own ops are put on."""
        return outer if _is_ipu(outer) else next(filter(_is_ipu, self._inner_devices), outer)

    def packed(self, outputs: list[tf.Tensor], operation: tf.Operation | None) -> Any:
        """Packs outputs as `compile` returns them."""
        if not self._structure:
            return operation
        given = iter(outputs)
        return tf.nest.map_structure(lambda leaf: None if leaf is None else next(given), self._structure)


def _result(value: Any) -> tf.Tensor | tf.Operation:
    """Converts a result of a computation to a tensor or operation."""
    if isinstance(value, tf.Operation):
        return value
    # In TensorFlow 1 nothing waits for updates that a program does not name: it gets what it started with.
    if tf_values.is_variable_itself(value) and not tf.compat.v1.executing_eagerly_outside_functions():
        return tf_values.read_first(value)
    return tf.convert_to_tensor(value)


def _has_estimator_spec(results: Any) -> bool:
    """Returns whether the results, nested lists included, have an `EstimatorSpec`."""
    if type(results) in (list, tuple):
        return any(map(_has_estimator_spec, results))
    return "EstimatorSpec" in type(results).__name__


def _on_no_device(parts: _Parts) -> tf.Operation:
    """A computation without an `ipu_scope` around or in it: allowed if it computes nothing."""
    if parts.computes:
        raise Exception(_NOT_ON_IPU)
    return tf.no_op()


def _is_ipu(device: str) -> bool:
    return tf.DeviceSpec.from_string(device).device_type == "IPU" if device else False


def _traced_on(device: str) -> contextlib.AbstractContextManager[None]:
    return traced_for(device_ordinal(device) if _is_ipu(device) else 0)


def _checked_ordinal(device: str) -> int:
    if not _is_ipu(device):
        raise Exception(_NOT_ON_IPU)
    return device_ordinal(device)


class _resource_variables:  # noqa: N801 - a context manager, used like a function
    """Context manager: TF1 variables are resource variables, since others cannot be captured by a program."""

    def __enter__(self) -> None:
        self._scope = tf.compat.v1.get_variable_scope()
        self._before = self._scope.use_resource
        self._scope.set_use_resource(True)

    def __exit__(self, *exception: Any) -> None:
        self._scope.set_use_resource(self._before)
