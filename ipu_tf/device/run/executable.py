"""`Executable`: compiles each part of a program once, runs it with its feeds, and counts executions."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ipu_tf.device.counters import COUNTERS
from ipu_tf.device.feeds import callbacks, connection_type, queues, synthetic
from ipu_tf.device.feeds.execution_queues import ExecutionQueues
from ipu_tf.device.files import saved_programs
from ipu_tf.device.memory import hidden_state
from ipu_tf.device.memory.malloc_options import keep_freed_memory
from ipu_tf.device.memory.memory_maps import make_room
from ipu_tf.device.numerics.assertions import ASSERTIONS, check_assertions
from ipu_tf.device.numerics.exceptions import EXCEPTIONS, check_exceptions
from ipu_tf.device.program.callback_state import CallbackState
from ipu_tf.device.program.program import Arrays, Hidden, LoopPart, Program, StraightLinePart
from ipu_tf.device.program.replicas import Replicas
from ipu_tf.device.program.slots import Slots
from ipu_tf.device.run import pre_compile
from ipu_tf.device.run.compilation_log import check_new, report_executed, report_failed
from ipu_tf.device.run.compiled_parts import CompiledParts
from ipu_tf.device.run.execution_context import ExecutionContext
from ipu_tf.device.run.forks import check_not_forked
from ipu_tf.device.run.interrupts import Interrupts
from ipu_tf.device.run.last_program import remember
from ipu_tf.device.run.lease import Lease, NoLease, kept
from ipu_tf.device.run.loop_run import LoopRun
from ipu_tf.device.run.pipeline_placement import parameter_devices, stage_places, together
from ipu_tf.device.run.pipeline_run import PipelineRun
from ipu_tf.device.run.run_record import RunRecord
from ipu_tf.device.run.step_elements import StepElements
from ipu_tf.device.timeline import span


@dataclasses.dataclass(frozen=True)
class ExecutionResult:
    """Result of an execution.

    Attributes:
        results: the program's results, on the device. After an error: those of the last complete iteration. New values
            of state have a leading axis of replicas where there are several; other results are those of replica 0.
        steps: loop iterations that ran.
        error: the error that ended the execution early, or None.
    """

    results: Arrays
    steps: int
    error: BaseException | None = None


@dataclasses.dataclass
class _LoopTotals:
    """What the loops of one execution have done so far.

    Attributes:
        steps: iterations of loops with feeds.
        error: the first error that ended a loop early, or None.
        capacities: of each loop with feeds the iterations that a chunk has room for.
    """

    steps: int = 0
    error: BaseException | None = None
    capacities: tuple[int, ...] = ()


class Executable(CompiledParts):
    """Program with its compiled parts, which are kept for further executions.

    Args:
        program: the program.
        ordinal: the `/device:IPU:<ordinal>` it runs on, whose seed it draws from.

    Attributes:
        record: times of its compilation and executions.
    """

    def __init__(self, program: Program, ordinal: int = 0) -> None:
        keep_freed_memory()
        make_room()
        super().__init__(program)
        self.ordinal = ordinal
        self.record = RunRecord(ordinal)
        self._label = f"execute {program.readable_name}"
        self._saved: set[Path] = set()
        self._callback_state = program.callback_state or CallbackState()
        self._lock = threading.Lock()
        self._shapes_seen: list[tuple[int, ...]] = []

    def run(
        self,
        parameters: Sequence[Any],
        own_queues: ExecutionQueues = ExecutionQueues(),  # noqa: B008
        lease: Lease = NoLease(),  # noqa: B008
    ) -> ExecutionResult:
        """Executes the program.

        Args:
            parameters: one array for each parameter, of its shape and dtype, which every replica starts from; or one
                with a leading axis of replicas. JAX arrays among those that `program.aliases` names are donated.
            own_queues: infeeds and outfeeds of this execution; others are those that are registered in the process.
            lease: of the variables among the parameters.

        Raises:
            UnknownQueue: a queue that the program uses was deleted.
            InfeedReplicaMismatch, OutfeedReplicaMismatch: another number of replicas uses such a queue too.
            QueueReplicationError: such a queue was made for another number of replicas.
            DeviceNotAttachedError: the device only compiles.
            ForkedProcess: the process was forked from one where JAX had started.
        """
        check_not_forked()
        if not self._shapes_seen:
            check_new(self.program, self.record)
        with (
            self._lock,
            queues.program_running(),
            jax.enable_x64(True),
            Interrupts() as self.compilation.interrupts,
            self.record.measuring(),
            span("Device", self._label),
            jax.profiler.StepTraceAnnotation(self._label, step_num=self.record.executions),
        ):
            try:
                result = self._run_on(parameters, own_queues, lease)
            except BaseException as error:
                report_failed(self.program, self.record, error)
                raise
        report_executed(self.program, self.record)
        return result

    def _run_on(self, parameters: Sequence[Any], own_queues: ExecutionQueues, lease: Lease) -> ExecutionResult:
        remember(self.program, self.record)
        saved_programs.save(self.program, self._saved)
        if not connection_type.attached():
            pre_compile.fill_cache(self, parameters, own_queues)
            placeholders = connection_type.placeholder_results(self.program, self.ordinal, own_queues)
            return ExecutionResult(self._placed(placeholders), 0)
        if not synthetic.uses(synthetic.TransferKind.PARAMETERS):
            return self._run_with_queues(parameters, own_queues, lease)
        return self._run_synthetic(parameters, own_queues)

    def _run_synthetic(self, parameters: Sequence[Any], own_queues: ExecutionQueues) -> ExecutionResult:
        """Runs on synthetic parameters; the host gets placeholder results."""
        outcome = self._run_with_queues(synthetic.parameters(parameters, self.program), own_queues, NoLease())
        given = [self.replicas.spread(p, t.shape) for p, t in zip(parameters, self.program.parameters, strict=True)]
        results = synthetic.results(outcome.results, given, self.program.aliases)
        return dataclasses.replace(outcome, results=self._placed(results))

    def _placed(self, results: Sequence[Any]) -> Arrays:
        """Moves placeholder results to the devices on which computed results would be."""
        several = self.program.aliases if self.replicas.count > 1 else {}
        return tuple(self.replicas.place(r, 0) if i in several else jax.device_put(r) for i, r in enumerate(results))

    def _run_with_queues(self, parameters: Sequence[Any], own_queues: ExecutionQueues, lease: Lease) -> ExecutionResult:
        with queues.used(own_queues.registered(self.program.queues), self.replicas.count):
            if not self.program.uses_callbacks:
                return self._run(parameters, own_queues, lease)
            with callbacks.executing(self._callback_state, own_queues):
                return self._run(parameters, own_queues, lease)

    def _run(self, parameters: Sequence[Any], own_queues: ExecutionQueues, lease: Lease) -> ExecutionResult:
        start = time.perf_counter()
        self.compilation.nothing_donated = True
        context = ExecutionContext(self, own_queues, Slots(self.program, self._replicate(parameters)), lease)
        state = hidden_state.initial(self.program.hidden, self.ordinal, self.replicas)
        totals = _LoopTotals()
        for index, part in enumerate(self.program.parts):
            if isinstance(part, StraightLinePart):
                state = self._run_straight_line(context, index, part, state)
            else:
                state = self._run_loop(context, index, part, state, totals)
        self._check(state)
        results = self._results(context.slots)
        self._count(totals)
        self.record.executed(start, totals.steps)
        return ExecutionResult(results, totals.steps, totals.error)

    def _run_loop(
        self, context: ExecutionContext, index: int, part: LoopPart, state: Hidden, totals: _LoopTotals
    ) -> Hidden:
        """Runs a loop, in chunks or as pipeline stages; returns the hidden state after it."""
        places = stage_places(part, self.program)
        if places:
            self.compilation.nothing_donated, self.record.in_stages = False, True
            loop: LoopRun | PipelineRun = PipelineRun(context, index, part, state, places)
        else:
            loop = LoopRun(context, index, part, state)
        state, ran, error = loop.run(stopped=totals.error is not None)
        totals.error = totals.error or error
        if not part.feedless:
            totals.steps += ran
            totals.capacities += (loop.capacity,)
        return state

    def _check(self, state: Hidden) -> None:
        """Raises failed assertions and floating-point exceptions."""
        if ASSERTIONS in state:
            check_assertions(np.asarray(state[ASSERTIONS]), self.program.checks)
        if EXCEPTIONS in state:
            check_exceptions(np.asarray(state[EXCEPTIONS]), self.program.checked)

    def _results(self, slots: Slots) -> Arrays:
        """Returns the program's results, computed: of replica 0 alone unless they are new values of state."""
        aliases = self.program.aliases
        results = tuple(r if i in aliases else self.replicas.first(r) for i, r in enumerate(slots.results()))
        jax.block_until_ready(results)
        return results

    def _replicate(self, parameters: Sequence[Any]) -> Sequence[Any]:
        """Broadcasts the parameters to all replicas, each on its own devices."""
        if self.replicas.count == 1:
            return parameters
        wanted = zip(parameters, self.program.parameters, self.homes(), strict=True)
        with span("Device", "upload parameters"):
            return [(home or self.replicas).spread(p, t.shape) for p, t, home in wanted]

    def _run_straight_line(
        self, context: ExecutionContext, index: int, part: StraightLinePart, state: Hidden
    ) -> Hidden:
        elements = self._elements(context, part)
        taken, kept = together(context.slots.take(index), self.replicas)
        outputs, state, enqueued = self.straight_line_function(index, part)(taken, kept, state, elements)
        self.compilation.nothing_donated &= not taken
        context.slots.fill(part.live_out, outputs)
        for name, element in enqueued.items():
            queue = context.queues.outfeed(name)
            queue.put(element if queue.last_only else [np.asarray(array)[None] for array in element], 1)
        return state

    def homes(self) -> tuple[Replicas | None, ...]:
        """Returns for each parameter the replicas on its JAX devices; None for those of the whole program."""
        if not connection_type.attached():
            return (None,) * len(self.program.parameters)
        return parameter_devices(self.program)

    def _elements(self, context: ExecutionContext, part: StraightLinePart) -> dict[str, Arrays]:
        """Dequeues the next element of each infeed, one for each replica, to the device."""
        infeeds, count = context.queues.infeeds(part.infeeds), self.replicas.count
        with kept(context.lease):
            taken = StepElements(infeeds, count, self.compilation.interrupted).take(part.infeeds)
        return {name: tuple(self.replicas.place(array, 0) for array in arrays) for name, arrays in taken.items()}

    def _count(self, totals: _LoopTotals) -> None:
        if totals.capacities not in self._shapes_seen:
            if self._shapes_seen:
                rooms = (str(list(capacities)) for capacities in (self._shapes_seen[-1], totals.capacities))
                self.record.because = "steps that its loops have room for were {} and are {}".format(*rooms)
            self._shapes_seen.append(totals.capacities)
            self.record.loaded, self.record.compiled_anew = self.loaded_from_cache(), True
            COUNTERS.count_program(loaded=self.record.loaded)
        COUNTERS.count_execution(totals.steps if totals.capacities else 1, self.replicas.count)
