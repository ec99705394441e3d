"""`TapedFunction`: a concrete function on the device, whose runs gradient tapes of TensorFlow record.

    run:            inputs, captures ──► program ──► results
    tape.gradient:  inputs, captures as they were, gradients of the results ──► another program ──► gradients

The other program is the function's vector-Jacobian product: it computes the function again, and then its gradient.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._state.trace_lock import TRACE_LOCK
from ipu_tf.device.memory.hidden_state import SEED, SHARED_SEED
from ipu_tf.lowering.programs.device_function import DeviceFunction, value_of
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.stablehlo.errors import LoweringError
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private, tf_values

Compute = Callable[..., Any]
"""Computes a function's results of its tensor inputs, in a trace."""


class TapedFunction:
    """Concrete function, lowered to a device program; further ones compute its gradients, once they are asked for.

    Args:
        function: a concrete function; its inputs must have fixed shapes.
        target: where it runs.
        title: what a user calls it, for reports.

    Attributes:
        runs: the program.

    Raises:
        LoweringError: TensorFlow cannot lower the function.
        UnsupportedOpsError: the device cannot run some of its ops.
    """

    def __init__(self, function: Any, target: Target, title: str = "") -> None:
        self._function, self._target, self._title = function, target, title
        self.runs = DeviceFunction(function, target, title)
        self._lock = threading.Lock()
        self._gradient: _Gradient | None = None

    def __call__(self, inputs: Sequence[tf.Tensor], compute: Compute | None = None) -> list[tf.Tensor]:
        """Runs it, as `DeviceFunction` does.

        Args:
            inputs: one tensor for each of the function's tensor inputs.
            compute: what the function was traced from, if that may be called again, to be differentiated. A concrete
                function would be one more call around what it calls, which TensorFlow differentiates less well.

        Raises:
            LoweringError: out of a tape, which asks for a gradient that no program computes.
        """
        if not tf_values.tapes_record():
            return self.runs(inputs)
        sources = [*inputs, *self.runs.captured()]
        return self._recorded(sources, self.runs(inputs), compute or self._function)

    def on(self, values: Sequence[tf.Tensor], compute: Compute) -> list[tf.Tensor]:
        """Runs it on values of its inputs and captures, whatever its variables have now."""
        results = self.runs.on(values)
        return self._recorded(values, results, compute) if tf_values.tapes_record() else results

    def _recorded(self, sources: Sequence[tf.Tensor], results: list[tf.Tensor], compute: Compute) -> list[tf.Tensor]:
        """Returns results of which tapes know that they were computed from `sources`."""
        given, made = _with_gradients(sources), _with_gradients(results)
        if not given or not made:
            return results

        @tf.custom_gradient
        def program(*_: tf.Tensor) -> Any:
            return [results[place] for place in made], lambda *upstream: self._gradients(sources, upstream, compute)

        with tf_values.eager_mode():
            taped = dict(zip(made, program(*(sources[place] for place in given)), strict=True))
        return [taped.get(place, result) for place, result in enumerate(results)]

    def _gradients(
        self, sources: Sequence[tf.Tensor], upstream: Sequence[Any], compute: Compute
    ) -> list[tf.Tensor | None]:
        """Returns the gradients for those of the sources that have one; None for those that nothing depends on."""
        if not tf.executing_eagerly():
            raise LoweringError(
                f"{self._name} was run eagerly, and the gradient of its results is asked for in a `tf.function`. "
                "Ask for it where the tape was made, outside of that."
            )
        with self._lock, tf_values.eager_mode():
            if self._gradient is None:
                self._check_gradient()
                self._gradient = _Gradient(self._function, self.runs, self._target, self._title, compute)
        with tf_values.eager_mode():
            return self._gradient(sources, [tf.convert_to_tensor(each) for each in upstream], compute)

    @property
    def _name(self) -> str:
        return f"The program `{self.runs.executable.program.readable_name}`"

    def _check_gradient(self) -> None:
        """Raises an error for a function that may not be computed again, or whose gradient is not that of its text."""
        program = self.runs.executable.program
        reasons = {
            "changes variables": program.aliases,
            "uses infeeds or outfeeds": program.queues,
            "calls the host": program.uses_callbacks,
            "draws random numbers": {SEED, SHARED_SEED} & set(program.hidden),
            f"runs as {program.replicas} replicas": program.replicas > 1,
        }
        why = " and ".join(reason for reason, found in reasons.items() if found)
        if why:
            raise LoweringError(
                f"A gradient tape around a program on the device asks for the gradient of its results. {self._name} "
                f"{why}: its gradient cannot be computed after it. Put the tape into the function that the device "
                "runs, and return the gradients, or use `tf.stop_gradient` on the results."
            )


class _Gradient:
    """The vector-Jacobian product of a function, as a program."""

    def __init__(self, function: Any, runs: DeviceFunction, target: Target, title: str, compute: Compute) -> None:
        self._captures = runs.lowered.captures
        self._inputs = len(runs.lowered.inputs)
        outputs, types = [output for output in function.outputs if output is not None], runs.lowered.module.results
        self._made = _with_gradients(outputs)
        self._connected: list[bool] = []
        upstream = [tf.TensorSpec(types[place].shape, outputs[place].dtype) for place in self._made]

        def gradient(*tensors: tf.Tensor) -> list[tf.Tensor]:
            return self._traced(compute, *tensors)

        traced = tf.function(gradient, autograph=False, jit_compile=True)
        # A function that was traced without a tape has loops whose gradients TensorFlow cannot always lower.
        with TRACE_LOCK, tf_graphs.own_function_traces():
            concrete = tf_private.concrete_function(traced, *runs.lowered.inputs, *upstream)
        self._program = TapedFunction(concrete, target, f"{title}: gradient") if any(self._connected) else None

    def _traced(self, compute: Compute, *tensors: tf.Tensor) -> list[tf.Tensor]:
        inputs, upstream = tensors[: self._inputs], tensors[self._inputs :]
        sources = [*inputs, *self._captures]
        wanted = [sources[place] for place in _with_gradients(sources)]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(wanted)
            results = tf.nest.flatten(compute(*inputs), expand_composites=True)
        results = [result for result in results if result is not None]
        gradients = tape.gradient([results[place] for place in self._made], wanted, upstream)
        self._connected = [gradient is not None for gradient in gradients]
        return [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]

    def __call__(
        self, sources: Sequence[tf.Tensor], upstream: Sequence[tf.Tensor], compute: Compute
    ) -> list[tf.Tensor | None]:
        if self._program is None:
            return [None] * len(self._connected)
        known = dict(zip(map(_identity, self._captures), sources[self._inputs :], strict=True))
        captures = self._program.runs.lowered.captures
        captured = [known[_identity(each)] if _identity(each) in known else value_of(each) for each in captures]
        values = [*sources[: self._inputs], *upstream, *captured]
        found = iter(self._program.on(values, functools.partial(self._traced, compute)))
        return [next(found) if connected else None for connected in self._connected]


def _with_gradients(values: Sequence[Any]) -> list[int]:
    """Returns the places of those tensors or variables that may have gradients."""
    return [place for place, value in enumerate(values) if value.dtype.is_floating or value.dtype.is_complex]


def _identity(capture: Any) -> int:
    """Returns what is the same for all objects of a captured tensor or variable."""
    return id(capture.handle if isinstance(capture, tf.Variable) else capture)
