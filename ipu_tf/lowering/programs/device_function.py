"""`DeviceFunction`: runs a concrete TensorFlow function on the device."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.device.errors import DeviceError
from ipu_tf.device.run.executable import Executable, ExecutionResult
from ipu_tf.device.run.interrupts import Interrupts, check_interrupts
from ipu_tf.device.timeline import span
from ipu_tf.lowering.programs.build import build_program
from ipu_tf.lowering.programs.capture_notes import capture_notes
from ipu_tf.lowering.programs.captures import Captures
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.programs.tensorflow_errors import to_tensorflow_error
from ipu_tf.lowering.programs.variable_lease import VariableLease
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.trace import Lowered, lower


class DeviceFunction:
    """Concrete function, lowered to a device program that can run any number of times.

    Args:
        function: a concrete function; its inputs must have fixed shapes.
        target: where it runs.
        title: what a user calls it, for reports.

    Raises:
        LoweringError: TensorFlow cannot lower the function.
        UnsupportedOpsError: the device cannot run some of its ops.
    """

    def __init__(self, function: Any, target: Target, title: str = "") -> None:
        self._function = function  # keeps the captured variables alive
        check_interrupts()
        with span("Compile", f"lower {title}"):
            self.lowered: Lowered = lower(function)
        check_interrupts()
        try:
            program = build_program(self.lowered.module, target.replicas, target.numerics)
            inputs = tuple(f"input {number}" for number in range(len(self.lowered.inputs)))
            notes = capture_notes(self.lowered.captures, before=inputs)
            program = dataclasses.replace(program, parameter_notes=notes, title=title)
            self.executable = Executable(program, target.ordinal)
        except DeviceError as error:
            raise to_tensorflow_error(error) from error.__cause__
        self._captures = Captures(self.lowered)
        results = {index: index for index in self.lowered.module.aliases}
        self._lease = VariableLease(self._captures, self.executable, results)
        self._one_run = threading.Lock()  # threads take turns

    def reads(self, feeds: Iterable[str]) -> bool:
        """Returns whether the program itself names one of some feeds."""
        return not set(feeds).isdisjoint(self.executable.program.queues)

    def __call__(self, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Runs it; the function's variables have their new values afterwards.

        Args:
            inputs: one tensor for each of the function's tensor inputs.

        Returns:
            The function's tensor outputs, flat, in order.

        Raises:
            Exception: what an infeed raised. Variables then hold the values of the last complete iteration.
        """
        check_interrupts()
        with self._one_run, Interrupts():
            return self._run(inputs)

    def fits_variables(self) -> bool:
        """Returns whether it was lowered for the shapes that its variables have now; most have one shape for good."""
        return self._captures.have_their_shapes()

    def captured(self) -> list[tf.Tensor]:
        """Returns what its captures have now, as tensors that gradient tapes know."""
        self._captures.flush()
        with tf_values.eager_mode():
            return list(map(value_of, self.lowered.captures))

    def on(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Runs it on values of its inputs and captures, in place of what its variables have. It may change none.

        Args:
            values: one tensor for each of the function's tensor inputs, then for each capture.

        Raises:
            Exception: as for a call.
        """
        check_interrupts()
        with Interrupts():
            try:
                outcome = self.executable.run(list(map(tf_values.tensor_memory, values)))
            except BaseException as error:
                raise to_tensorflow_error(error) from error.__cause__
            return self._outputs(outcome)

    def _run(self, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        values = [tf_values.tensor_memory(tensor) for tensor in inputs]
        try:
            outcome = self.executable.run([*values, *self._captures.acquire(self.executable)], lease=self._lease)
        except BaseException as error:
            self._captures.recover()
            raise to_tensorflow_error(error) from error.__cause__
        self._captures.commit(outcome.results, flush=True)
        return self._outputs(outcome)

    def _outputs(self, outcome: ExecutionResult) -> list[tf.Tensor]:
        if outcome.error is not None:
            raise to_tensorflow_error(outcome.error)
        with tf_values.eager_mode():
            return [tf.convert_to_tensor(np.array(array)) for array in outcome.results[: self.lowered.outputs]]


def value_of(capture: Any) -> tf.Tensor:
    """Returns what a captured tensor or variable has now on the host."""
    return capture.value() if isinstance(capture, tf.Variable) else capture
