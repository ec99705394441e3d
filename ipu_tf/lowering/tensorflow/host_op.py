"""`HostOp`: a TensorFlow op that runs Python, by which sessions and `tf.function`s call the device."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ipu_tf._state.numbers import next_number
from ipu_tf._state.registry import register_state
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.run.interrupts import called_back
from ipu_tf.lowering.stablehlo.errors import LoweringError, UnsupportedOpsError
from ipu_tf.lowering.tensorflow import tf_graphs, tf_session_patches

_REFUSALS = (DeviceError, LoweringError, UnsupportedOpsError, tf.errors.OpError)
_failures: dict[int, BaseException] = register_state("exceptions of host ops", {})
_MOST_KEPT = 16


@dataclasses.dataclass(frozen=True)
class HostOp:
    """TensorFlow op that runs a Python function.

    Attributes:
        operation: the op; running it runs the Python function once.
        results: its results.
    """

    operation: tf.Operation
    results: list[tf.Tensor]


def host_op(
    function: Callable[..., Sequence[np.ndarray] | None],
    inputs: Sequence[tf.Tensor],
    outputs: Sequence[tf.TensorSpec],
    name: str,
) -> HostOp:
    """Adds an op to the current graph that calls `function` with its inputs' values when it runs.

    Args:
        function: takes one array an input and gives one array an output, of the dtypes in `outputs`; None where there
            are no outputs.
        inputs: tensors of the current graph.
        outputs: what the results are; shapes may be partly known.
        name: the op's name.

    Raises:
        When it runs: what the function raised, out of `Session.run`; out of a `tf.function` as TensorFlow words it.
    """
    raise_original_errors()

    def call(*values: np.ndarray) -> list[np.ndarray]:
        try:
            with called_back():
                return [np.asarray(result) for result in function(*values) or ()] or [np.zeros((), np.int32)]
        except (Exception, KeyboardInterrupt) as error:
            # TensorFlow prints the chain of causes twice and more. What was refused is said by the message alone.
            cause = None if isinstance(error, _REFUSALS) else error
            raise RuntimeError(f"{error} {_remembered(error)}") from cause

    # The op wants a result to be of use; one that has none gives a dummy.
    dtypes = [spec.dtype for spec in outputs] or [tf.int32]
    with tf.device("/device:CPU:0"):
        results = tf.numpy_function(call, list(inputs), dtypes, stateful=True, name=name)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    operation = results[0].op
    setattr(operation.graph, tf_session_patches.RUNS_PROGRAMS, True)
    for result, spec in zip(results, outputs, strict=False):
        result.set_shape(spec.shape)
    return HostOp(operation, results[: len(outputs)])


def raise_original_errors() -> None:
    """Patches `Session.run` to raise the original exception of a host op's function."""
    tf_session_patches.patch_session_errors(_original)


def _remembered(error: BaseException) -> str:
    """Stores an exception; returns the text by which `_original` finds it."""
    number = next_number("exception of a host op")
    _failures[number] = error
    _failures.pop(number - _MOST_KEPT, None)
    return f"(ipu_tf error {number})"


def _original(error: BaseException) -> BaseException | None:
    """Returns the original exception behind TensorFlow's error, once."""
    found = re.search(r"\(ipu_tf error (\d+)\)", str(error))
    return _failures.pop(int(found.group(1)), None) if found else None


def without_gradients(results: Sequence[tf.Tensor], sources: Sequence[tf.Tensor], name: str) -> list[tf.Tensor]:
    """Returns a program's results; what computes their gradients in the graph raises an error when it runs.

    The op is Python to TensorFlow: without this its gradient would be None, and that of a sum would lack its part.
    TensorFlow makes a function's gradients for all of its results, whichever a tape asks for: the others get zeros, of
    which the gradients are zeros.

    Args:
        results: of the program, tensors of the current graph.
        sources: what they were computed from, tensors of that graph.
        name: of the program.
    """
    made = [place for place, result in enumerate(results) if result.dtype.is_floating]
    given = [source for source in sources if source.dtype.is_floating]
    if not made or not given:
        return list(results)

    def gradients(*upstream: tf.Tensor | None) -> list[tf.Tensor | None]:
        asked = [tf.convert_to_tensor(each) for each in upstream[: len(made)] if each is not None]
        checked = host_op(_check_zeros, asked, [], f"{name}_gradient")
        with tf.device("/device:CPU:0"), tf.control_dependencies([checked.operation]):
            return [None] * len(made) + [tf.zeros_like(source) for source in given]

    with tf.device("/device:CPU:0"):
        passed = tf_graphs.with_gradient([*(results[place] for place in made), *given], gradients)
    of_places = dict(zip(made, passed, strict=False))
    return [of_places.get(place, result) for place, result in enumerate(results)]


def _check_zeros(*upstream: np.ndarray) -> None:
    """Raises an error if a gradient of the results is asked for."""
    if any(np.any(gradient) for gradient in upstream):
        raise LoweringError(
            "The gradient of the results of a program is asked for in a graph: a TensorFlow 1 session, or a "
            "`tf.function` that calls `strategy.run` or `ipu_compiler.compile`. Put the tape, or `tf.gradients`, into "
            "the function that the device runs, and return the gradients. Gradients of a program that is run "
            "eagerly are computed."
        )
