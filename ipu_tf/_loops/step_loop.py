"""`StepLoop`: runs a TensorFlow step function as a loop on the device, for Keras models.

elements ──► StepLoop.run(steps) ──► step outputs
              │  variables stay on the device between runs
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._loops.step_outputs import StepOutputs
from ipu_tf._loops.tensor_feed import Feed
from ipu_tf._training.replication import check_target, target
from ipu_tf.device.errors import InfeedExhausted
from ipu_tf.device.feeds import connection_type as connection
from ipu_tf.device.feeds import queues
from ipu_tf.device.feeds.outfeed import Outfeed
from ipu_tf.device.memory.residency import RESIDENCY
from ipu_tf.device.program.program import bytes_of
from ipu_tf.device.run.executable import Executable
from ipu_tf.device.run.interrupts import Interrupts
from ipu_tf.lowering.programs.captures import Captures
from ipu_tf.lowering.programs.host_errors import to_tensorflow_error
from ipu_tf.lowering.programs.step_program import step_program
from ipu_tf.lowering.tensorflow import tf_private, tf_values
from ipu_tf.lowering.tensorflow.trace import lower

_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class Ran:
    """Result of a run of a step loop.

    Attributes:
        steps: how many steps ran; fewer than asked for if the elements ran out.
        rows: what the step returned: of the last step, or of every step with a leading dimension. None if no step ran.
    """

    steps: int
    rows: Any


class StepLoop:
    """A step function traced for elements of one structure and shape.

    Args:
        step: takes one element and returns a structure of tensors; may read and change variables.
        element_spec: the structure of `tf.TensorSpec`s of an element, `None`s allowed; shapes fully defined.
        ordinal: the `/device:IPU:<ordinal>` it runs on.
        all_rows: keep the rows of all steps, not only the last.
        shards: how many IPUs one replica of it uses.
        stepwise: give out the row of each step when it has run, not those of a chunk of steps: `run` can be watched.
        lengths_vary: runs of one step and of several come in turn: they share one compiled function.

    Attributes:
        replicas: how many replicas run it, each on elements of its own: with several, element `replicas * i + r` is
            that of step `i` on replica `r`, and rows have a dimension of replicas, after that of steps.
        row_bytes: bytes of what one step returns, on one replica.
        calls_host: whether the step calls Python on the host.

    Raises:
        LoweringError: if TensorFlow cannot lower the step.
        UnsupportedOpsError: if the device cannot run some of its ops.
    """

    def __init__(
        self,
        step: Callable[[Any], Any],
        element_spec: Any,
        ordinal: int = 0,
        all_rows: bool = False,
        shards: int = 1,
        stepwise: bool = False,
        lengths_vary: bool = False,
    ) -> None:
        self._target = target(ordinal, shards)
        self._shards = shards
        self.replicas = self._target.replicas
        specs = [spec for spec in tf.nest.flatten(element_spec) if spec is not None]

        def flat(*tensors: tf.Tensor) -> Any:
            given = iter(tensors)
            filled = [None if spec is None else next(given) for spec in tf.nest.flatten(element_spec)]
            return step(tf.nest.pack_sequence_as(element_spec, filled))

        # Gradients of loops, as of masked RNNs, lower only if TensorFlow knows while tracing that XLA will compile.
        traced = tf.function(flat, autograph=False, jit_compile=True)
        function = tf_private.concrete_function(traced, *specs)
        self._function = function  # keeps the variables alive
        self._structure = function.structured_outputs
        self._leaves = tf.nest.flatten(self._structure)
        self._lowered = lower(function)
        tf_private.forget_custom_gradients(function.graph.as_graph_def())
        number = next(_numbers)
        self._infeed = f"step_infeed_{number}"
        self._outfeed = Outfeed(f"step_outfeed_{number}", last_only=not all_rows)
        feeds = (self._infeed, self._outfeed.name)
        self._stepwise = stepwise
        most = 1 if stepwise else None
        program = step_program(self._lowered, *feeds, self.replicas, self._target.numerics, most, lengths_vary)
        self._executable = Executable(program, ordinal)
        self.calls_host = program.uses_callbacks
        types = self._lowered.module.results[: self._lowered.outputs]
        self.row_bytes = bytes_of(types)
        self._rows = StepOutputs(self._outfeed, types, self._executable.replicas, all_rows)
        self._captures = Captures(self._lowered)

    def run(self, elements: Feed, steps: int, watch: Callable[[Any], None] | None = None) -> Ran:
        """Runs up to `steps` steps.

        Args:
            elements: where elements come from; taken as far as they are needed.
            steps: how many steps to run.
            watch: called with what the step returned, of one step after the other, in a thread of its own while later
                steps run; for a `stepwise` loop. The run ends after its last call. If it raises, the run ends early,
                and raises that.

        Raises:
            tf.errors.FailedPreconditionError: if no device is configured, or it has other IPUs or settings than before.
            Exception: what the source of the elements raised. The variables are those of the last complete step.
            KeyboardInterrupt: on Ctrl-C, after the steps whose elements were taken already; the same holds then.
        """
        with Interrupts() as interrupts:
            elements.check = interrupts.check
            run = self._run(elements, steps) if watch is None else self._run_watched(elements, steps, watch)
        interrupts.check()
        ran, rows = run
        return Ran(ran, None if rows is None else self._packed(rows))

    def run_each(self, elements: Feed, steps: int) -> list[Any]:
        """Runs up to `steps` steps of a loop with `all_rows`; returns the outputs of each.

        Args:
            elements: as for `run`, which says what is raised as well.
            steps: how many steps to run.
        """
        with Interrupts() as interrupts:
            elements.check = interrupts.check
            ran, rows = self._run(elements, steps)
        interrupts.check()
        return [self._packed([array[step] for array in rows or ()]) for step in range(ran)]

    def _run_watched(self, elements: Feed, steps: int, watch: Callable[[Any], None]) -> tuple[int, list[Any] | None]:
        assert self._stepwise, "Rows of a loop that is not stepwise come in chunks."
        with self._rows.watched(elements, lambda row: watch(self._packed(row))) as ended:
            ran = self._run(elements, steps)
            ended(ran[0])
        return ran

    def _run(self, elements: Feed, steps: int) -> tuple[int, list[Any] | None]:
        """Runs steps; returns their number and the arrays of their outputs."""
        check_target(self._target, self._shards)
        self._rows.forget()
        queues.add_infeed(elements.as_infeed(self._infeed))
        queues.add_outfeed(self._outfeed)
        try:
            captured = self._captures.acquire(self._executable.replicas, self._executable.homes())
            outcome = self._executable.run([np.int32(steps), *captured])
        except BaseException as error:
            self._captures.recover()
            raise to_tensorflow_error(error) from error.__cause__
        finally:
            queues.remove(self._infeed)
            queues.remove(self._outfeed.name)
        self._captures.commit(dict(zip(self._lowered.module.aliases, outcome.results, strict=True)))
        if outcome.error is not None and not isinstance(outcome.error, InfeedExhausted):
            raise to_tensorflow_error(outcome.error)
        ran = outcome.steps if connection.attached() else elements.skip_elements(steps, self.replicas)
        return ran, self._rows.of_run(ran)

    def _packed(self, arrays: Sequence[np.ndarray]) -> Any:
        given = iter(arrays)
        flat = [None if leaf is None else tf_values.host_tensor(next(given)) for leaf in self._leaves]
        return tf.nest.pack_sequence_as(self._structure, flat)


def flush_variables() -> None:
    """Writes resident variables that changed on the device back to the host."""
    RESIDENCY.flush()


def replicas_on(ordinal: int, shards: int = 1) -> int:
    """Returns the number of replicas of a step that uses so many IPUs, on `/device:IPU:<ordinal>`.

    Raises:
        tf.errors.FailedPreconditionError: if no device is configured.
        tf.errors.InternalError: if the IPUs of a replica do not divide those of the device.
    """
    return target(ordinal, shards).replicas
