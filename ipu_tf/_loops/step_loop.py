"""`StepLoop`: runs a training, evaluation or prediction step as a loop on the device, for Keras models.

    state, batches ──► StepLoop.run(steps) ──► state, outputs of the steps
                           │
                       DeviceStep: the step, traced by TensorFlow (`TensorFlowStep`) or by JAX (`JaxStep`)

Everything that does not depend on who traces the step is here: queues, Ctrl-C, errors, outputs while the loop runs.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from ipu_tf._loops.batch_feed import BatchFeed
from ipu_tf._loops.feature_names import feature_names
from ipu_tf._loops.loop_lanes import LoopLane, LoopLanes
from ipu_tf._loops.output_stream import live_outfeeds
from ipu_tf._loops.step_outputs import StepOutputs
from ipu_tf._training.replication import check_target, target
from ipu_tf.device.errors import InfeedExhausted
from ipu_tf.device.feeds import connection_type
from ipu_tf.device.feeds.execution_queues import ExecutionQueues
from ipu_tf.device.feeds.outfeed import Outfeed
from ipu_tf.device.memory.hidden_state import SEED
from ipu_tf.device.memory.seed import is_seeded
from ipu_tf.device.program.program import Program, Types, bytes_of
from ipu_tf.device.run.executable import Executable, ExecutionResult
from ipu_tf.device.run.interrupts import Interrupts, check_interrupts, interrupt_at_once
from ipu_tf.device.run.lease import Lease
from ipu_tf.device.run.recompilation import Signature, array_text, settings_of, what_changed
from ipu_tf.device.timeline import span
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.programs.tensorflow_errors import to_tensorflow_error

INFEED, OUTFEED = "step_infeed", "step_outfeed"
"""Names of a step loop's queues, which are passed to each execution."""


@dataclasses.dataclass(frozen=True)
class LoopOptions:
    """Options of a step loop. Loops with equal ones can share a compiled program.

    Attributes:
        ordinal: the `/device:IPU:<ordinal>` it runs on.
        shards: how many IPUs one replica uses.
        all_outputs: whether to keep the outputs of all steps, not only those of the last.
        stepwise: whether outputs reach the host after each step, not after each chunk of steps: `run` can be watched.
        lengths_vary: whether runs of one step and of several come in turn: they share one compiled function.
        overflow_shows: whether float16 that overflows is NaN, whatever the configuration says.
    """

    ordinal: int = 0
    shards: int = 1
    all_outputs: bool = False
    stepwise: bool = False
    lengths_vary: bool = False
    overflow_shows: bool = False

    @property
    def most_steps(self) -> int | None:
        """The most steps that run before their outputs reach the host; None for no limit."""
        return 1 if self.stepwise else None


class DeviceStep(Protocol):
    """A step function of TensorFlow or JAX, as `StepLoop` runs it: how it is traced, and where its state lives.

    Attributes:
        output_types: shape and dtype of each array that a step returns, on one replica; known once it is traced.
    """

    output_types: Types

    def trace(self, target: Target, options: LoopOptions) -> Program:
        """Traces the step into a program that runs it in a loop: dequeues a batch from `INFEED`, enqueues to `OUTFEED`.

        Args:
            target: device, replicas and floating-point settings.
            options: of the loop.
        """
        ...

    def acquire(self, state: Any, executable: Executable) -> Sequence[Any]:
        """Returns the program's parameters after the number of steps. Arrays of the state are donated."""
        ...

    def lease(self, executable: Executable) -> Lease:
        """Returns what lets others use the state while an execution waits for data."""
        ...

    def commit(self, results: Sequence[Any]) -> Any:
        """Takes the program's results; returns the new state."""
        ...

    def waits_since(self) -> float | None:
        """Returns when the present execution began to wait for data, by `time.monotonic`; None if it does not."""
        ...

    def like(self) -> DeviceStep:
        """Returns the traced step for other executions that run meanwhile."""
        ...

    def recover(self) -> None:
        """Recovers the state after a failed execution, as far as it is kept here."""
        ...

    def pack(self, arrays: Sequence[Any]) -> Any:
        """Returns arrays, one for each of `output_types`, in the structure that the step returns."""
        ...


@dataclasses.dataclass(frozen=True)
class StepLoopResult:
    """Result of a run of a step loop.

    Attributes:
        steps: how many steps ran; fewer than asked for if the batches ran out, or an error ended them.
        state: the new state, in the structure it was given in; with several replicas its arrays have a leading
            dimension of replicas. `()` for steps that keep their state in variables.
        outputs: what the step returned: of the last step, or of every step with a leading dimension. With several
            replicas there is a dimension of replicas, after that of steps. None if no step ran.
        error: what ended the run early, or None. The state is that of the last complete step.
    """

    steps: int
    state: Any
    outputs: Any
    error: BaseException | None = None

    def raise_for_error(self) -> StepLoopResult:
        """Raises the error that ended the run, if there is one; else returns the result itself."""
        if self.error is not None:
            raise self.error
        return self


class StepLoop:
    """A step traced for batches of one structure and shape, as a loop on the device.

    Args:
        step: the step, as TensorFlow or JAX will trace it.
        options: of the loop.
        title: what a user calls it, for reports: the model and what it does.

    Attributes:
        output_bytes: bytes of what one step returns, on one replica.

    Raises:
        EmulationError: if the configuration wants floating-point settings that this kind of step does not model.
        LoweringError: if TensorFlow cannot lower the step.
        UnsupportedOpsError: if the device cannot run some of its ops.
        tf.errors.FailedPreconditionError: if no device is configured.
        tf.errors.InternalError: if the IPUs of a replica do not divide those of the device.
    """

    def __init__(self, step: DeviceStep, options: LoopOptions = LoopOptions(), title: str = "") -> None:  # noqa: B008
        self._step = step
        self._options = options
        self._target = target(options.ordinal, options.shards, options.overflow_shows)
        start = time.perf_counter()
        with interrupt_at_once(), span("Compile", f"trace and lower {title}"):
            program = dataclasses.replace(step.trace(self._target, options), title=title)
        check_interrupts()
        self._lanes = LoopLanes(_lane(step, program, options), lambda: _lane(step.like(), program, options))
        self.executable.record.front_end_seconds = time.perf_counter() - start
        self._calls_host, self._draws = program.uses_callbacks, SEED in program.hidden
        self._signature: Signature = {}
        self.output_bytes = bytes_of(step.output_types)

    @property
    def executable(self) -> Executable:
        """The program that runs the steps, with the times of its executions."""
        return self._lanes.first.executable

    def follow(self, earlier: Iterable[StepLoop], feed: BatchFeed, **settings: object) -> None:
        """Notes what the loop depends on: its compilation then says what changed since the earlier loop most like it.

        Args:
            earlier: loops of the same function.
            feed: of the batches that it is for.
            settings: what else it depends on, by names that a user knows.
        """
        types = (array_text(each.shape, each.dtype) for each in feed.types)
        arrays = dict(zip(feature_names(feed.spec()), types, strict=True))
        known = settings_of(self._target) | settings_of(self._options)
        self._signature = {name: str(value) for name, value in settings.items()} | arrays | known
        before = (loop._signature for loop in earlier if loop._signature)
        self.executable.record.because = what_changed(self._signature, before)

    @property
    def may_run_ahead(self) -> bool:
        """Whether several steps may run in place of one: they then draw other random numbers, and call Python later."""
        return not self._calls_host and not (self._draws and is_seeded(self._options.ordinal))

    def run(
        self, state: Any, batches: BatchFeed, steps: int, watch: Callable[[Any], None] | None = None
    ) -> StepLoopResult:
        """Runs up to `steps` steps.

        Args:
            state: the state, of which the device takes over the JAX arrays. An array may be one replica's, which all
                then start from, or have a leading axis of replicas. `()` for steps that keep theirs in variables.
            batches: where batches come from; taken as far as they are needed. With R replicas batch `R * i + r` is that
                of step `i` on replica `r`.
            steps: how many steps to run.
            watch: called with what the step returned, of one step after the other, in a thread of its own while later
                steps run; for a `stepwise` loop. The run ends after its last call. If it raises, the run ends early,
                and that is the `error` of the result.

        Raises:
            tf.errors.FailedPreconditionError: if no device is configured, or it has other IPUs or settings than before.
            KeyboardInterrupt: on a second Ctrl-C. The first is the `error` of the result, after the steps whose
                batches were taken already.
        """
        ran = self._run_interruptible(state, batches, steps, watch)
        return ran if ran.outputs is None else dataclasses.replace(ran, outputs=self._step.pack(ran.outputs))

    def run_steps(self, state: Any, batches: BatchFeed, steps: int) -> StepLoopResult:
        """Runs up to `steps` steps of a loop with `all_outputs`; the result has a list of the outputs of each step.

        Args:
            state: as for `run`, which says what is raised as well.
            batches: as for `run`.
            steps: how many steps to run.
        """
        ran = self._run_interruptible(state, batches, steps)
        outputs = [self._step.pack([array[step] for array in ran.outputs]) for step in range(ran.steps)]
        return dataclasses.replace(ran, outputs=outputs)

    def _run_interruptible(
        self, state: Any, batches: BatchFeed, steps: int, watch: Callable[[Any], None] | None = None
    ) -> StepLoopResult:
        """Runs steps with Ctrl-C deferred; the outputs are the arrays as they came."""
        with Interrupts() as interrupts, self._lanes.free(interrupts.check) as lane:
            batches.check = interrupts.check
            given = (lane, state, batches, steps)
            ran = self._run(*given) if watch is None else self._run_watched(*given, watch)
            try:
                interrupts.check()
            except KeyboardInterrupt as asked:
                return _with_error(ran, asked)
        return ran

    def _run_watched(
        self, lane: LoopLane, state: Any, batches: BatchFeed, steps: int, watch: Callable[[Any], None]
    ) -> StepLoopResult:
        assert self._options.stepwise, "Outputs of a loop that is not stepwise come in chunks."
        ran: StepLoopResult | None = None
        try:
            with lane.outputs.watched(batches, lambda arrays: self._call(watch, arrays)) as ended:
                ran = self._run(lane, state, batches, steps)
                lane.delivers_since = time.monotonic()
                ended(ran.steps)
        except BaseException as error:
            if ran is None:
                raise
            return _with_error(ran, error)
        return ran

    def _call(self, watch: Callable[[Any], None], arrays: Sequence[Any]) -> None:
        with span("Callbacks", "callbacks of a step"):
            watch(self._step.pack(arrays))

    def _run(self, lane: LoopLane, state: Any, batches: BatchFeed, steps: int) -> StepLoopResult:
        outcome = self._execute(lane, state, batches, steps)
        state = lane.step.commit(outcome.results)
        error = outcome.error
        ended_by = None if error is None or isinstance(error, InfeedExhausted) else to_tensorflow_error(error)
        replicas = lane.executable.replicas.count
        ran = outcome.steps if connection_type.attached() else batches.skip_elements(steps, replicas)
        return StepLoopResult(ran, state, lane.outputs.of_run(ran), ended_by)

    def _execute(self, lane: LoopLane, state: Any, batches: BatchFeed, steps: int) -> ExecutionResult:
        check_target(self._target, self._options.shards, self._options.overflow_shows)
        lane.outputs.forget()
        outfeeds = {OUTFEED: lane.outfeed, **live_outfeeds()}
        queues = ExecutionQueues({INFEED: batches.as_infeed(INFEED)}, outfeeds)
        try:
            parameters = [np.int32(steps), *lane.step.acquire(state, lane.executable)]
            return lane.executable.run(parameters, queues, lane.step.lease(lane.executable))
        except BaseException as error:
            lane.step.recover()
            raise to_tensorflow_error(error) from error.__cause__


def _lane(step: DeviceStep, program: Program, options: LoopOptions) -> LoopLane:
    """Returns what one run of a step uses, which is traced."""
    executable = Executable(program, options.ordinal)
    outfeed = Outfeed(OUTFEED, last_only=not options.all_outputs)
    outputs = StepOutputs(outfeed, step.output_types, executable.replicas, options.all_outputs)
    return LoopLane(step, executable, outfeed, outputs)


def _with_error(ran: StepLoopResult, error: BaseException) -> StepLoopResult:
    """Returns a result that ended with an error: the first one, if there was one already."""
    return ran if ran.error is not None else dataclasses.replace(ran, error=error)
