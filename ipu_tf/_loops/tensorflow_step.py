"""`TensorFlowStep`: a TensorFlow step function for `StepLoop`. Its variables stay on the device between runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._data.narrow_dtypes import fed
from ipu_tf._loops.step_loop import INFEED, OUTFEED, LoopOptions
from ipu_tf.device.memory.residency import RESIDENCY
from ipu_tf.device.program.program import Program
from ipu_tf.device.run.executable import Executable
from ipu_tf.device.run.lease import Lease
from ipu_tf.lowering.programs.captures import Captures
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.programs.step_program import step_program
from ipu_tf.lowering.programs.variable_lease import VariableLease
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private, tf_values
from ipu_tf.lowering.tensorflow.trace import lower


class TensorFlowStep:
    """A step function, traced by `tf.function` for batches of one structure and shape. See `DeviceStep`.

    Args:
        step: takes one batch and returns a structure of tensors; may read and change variables, which are its state.
        batch_spec: the structure of `tf.TensorSpec`s of a batch, `None`s allowed; shapes fully defined. Data of 64 bits
            is fed as 32 bits, and the step gets it in its own dtype.
        optimizer_state: gives the variables of the optimizer once the step is traced, for reports.
    """

    def __init__(
        self, step: Callable[[Any], Any], batch_spec: Any, optimizer_state: Callable[[], Sequence[Any]] = tuple
    ) -> None:
        self._step = step
        self._optimizer_state = optimizer_state
        self._batch_spec = batch_spec

    def trace(self, target: Target, options: LoopOptions) -> Program:
        """Traces and lowers the step; see `DeviceStep.trace`."""
        specs = [fed(spec) for spec in tf.nest.flatten(self._batch_spec) if spec is not None]
        # Gradients of loops, as of masked RNNs, lower only if TensorFlow knows while tracing that XLA will compile.
        traced = tf.function(self._flat_step, autograph=False, jit_compile=True)
        with tf_graphs.own_function_traces():
            function = tf_private.concrete_function(traced, *specs)
        self._function = function  # keeps the variables alive
        self._structure = function.structured_outputs
        self._leaves = tf.nest.flatten(self._structure, expand_composites=True)
        self._lowered = lower(function)
        tf_graphs.forget_custom_gradients(function.graph, function.graph.as_graph_def())
        self._captures = Captures(self._lowered)
        self.output_types = self._lowered.module.results[: self._lowered.outputs]
        numerics = target.numerics
        lengths = options.most_steps, options.lengths_vary
        slots = self._optimizer_state()
        return step_program(self._lowered, INFEED, OUTFEED, target.replicas, numerics, *lengths, slots)

    def acquire(self, state: Any, executable: Executable) -> Sequence[Any]:
        """Returns the values of the captured variables and tensors on the device."""
        return self._captures.acquire(executable)

    def lease(self, executable: Executable) -> Lease:
        """Returns the lease of the variables."""
        return VariableLease(self._captures, executable, dict(enumerate(self._lowered.module.aliases)))

    def commit(self, results: Sequence[Any]) -> tuple[()]:
        """Stores the new values of the variables that the step changes; they stay on the device."""
        self._captures.commit(dict(zip(self._lowered.module.aliases, results, strict=True)))
        return ()

    def waits_since(self) -> float | None:
        """Returns when the present execution began to wait for data; None if it does not."""
        return self._captures.claim.parked_since

    def like(self) -> TensorFlowStep:
        """Returns the traced step with captures of its own."""
        other = copy.copy(self)
        other._captures = Captures(self._lowered)
        return other

    def recover(self) -> None:
        """Recovers the variables after a failed execution."""
        self._captures.recover()

    def pack(self, arrays: Sequence[Any]) -> Any:
        """Returns arrays as tensors on the host, in the structure that the step returns."""
        given = iter(arrays)
        flat = [None if leaf is None else tf_values.host_tensor(next(given)) for leaf in self._leaves]
        return tf.nest.pack_sequence_as(self._structure, flat, expand_composites=True)

    def _flat_step(self, *tensors: tf.Tensor) -> Any:
        given = iter(tensors)
        specs = tf.nest.flatten(self._batch_spec)
        filled = [None if spec is None else tf.cast(next(given), spec.dtype) for spec in specs]
        return self._step(tf.nest.pack_sequence_as(self._batch_spec, filled))


def flush_variables() -> None:
    """Writes resident variables that changed on the device back to the host."""
    RESIDENCY.flush()
