"""`PipelineRun`: runs a pipeline stage by stage on several JAX devices, in the order of its timetable.

Only where there are several JAX devices, and the pipeline can be on them (`pipeline_placement.stage_places`). Elsewhere
a pipeline is one loop (`LoopRun`), micro-batch after micro-batch, and its timetable does not drive what runs: the
numbers are the same.

    timetable   F0 on IPU 0 │ F1 on IPU 0, F0 on IPU 1 │ ...
    host        dispatches each task to its device asynchronously: devices work at the same time, each task as soon as
                its inputs have arrived

The host never waits for a task, except that it stays at most some tasks ahead of the devices, and for outfeeds'
elements one pass after they were computed.
"""

from __future__ import annotations

import collections
import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.memory.hidden_state import SEED
from ipu_tf.device.program.program import Arrays, Hidden, LoopPart
from ipu_tf.device.program.replicas import Replicas
from ipu_tf.device.program.stage_program import StageProgram, StageSegment, UpdateStep
from ipu_tf.device.run.execution_context import ExecutionContext
from ipu_tf.device.run.lease import kept
from ipu_tf.device.run.pipeline_counts import PipelineRecorder, record
from ipu_tf.device.run.pipeline_functions import StageFunctions
from ipu_tf.device.run.pipeline_passes import passes
from ipu_tf.device.run.pipeline_placement import measures_times, together
from ipu_tf.device.run.pipeline_routes import routes
from ipu_tf.device.run.pipeline_state import PipelineState
from ipu_tf.device.run.step_elements import StepElements
from ipu_tf.device.schedule.timetable import Task, TaskKind, Timetable
from ipu_tf.device.timeline import recording

_AHEAD = 4
"""Passes of a micro-batch through the pipeline that the host may be ahead of the devices."""


class PipelineRun:
    """Execution of part `index`, a pipeline, of an executable's program.

    Args:
        context: the execution's queues and arrays, and what keeps compiled functions.
        index: which part.
        part: that part; its `stages` are a `StageProgram`.
        hidden: its hidden state.
        places: for each IPU of a replica the JAX devices that it is, one for each replica.

    Attributes:
        capacity: how many micro-batches go through the timetable at a time.

    Raises:
        AccumulationCountError: for a number of micro-batches that makes no whole number of updates.
    """

    def __init__(
        self, context: ExecutionContext, index: int, part: LoopPart, hidden: Hidden, places: tuple[Replicas, ...]
    ) -> None:
        assert isinstance(part.stages, StageProgram) and part.trip_count is not None
        executable, slots, self._lease = context.executable, context.slots, context.lease
        self._part, self._program, self._slots = part, part.stages, slots
        self._home, self._replicas = executable.replicas, executable.replicas.count
        total = part.trip_count([self._home.first(array) for array in slots.read(part.carry_in)])
        assert total is not None, "pipelines count by themselves"
        self._total = total
        self._passes = passes(self._program, self._total, part.accumulated_at)
        self.capacity = self._passes[0].micro_batches if self._passes else 0
        self._places = tuple(places[where] for where in self._program.mapping)
        self._routes = executable.kept(("routes", index), lambda: routes(self._program))
        donate = not executable.program.keeps_state
        self._functions: StageFunctions = executable.kept(
            ("stages", index), lambda: StageFunctions(self._program, self._places, donate=donate)
        )
        measures = measures_times() or recording() is not None
        self._recorder = PipelineRecorder(self._program.mapping, measures, self._replicas)
        self._hidden = hidden
        self._state = PipelineState(self._program, self._places, hidden)
        own = {place for place, value in enumerate(self._program.carried) if value in self._program.homes}
        self._carry = slots.donate_carry(index, part, own)
        self._place(self._carry, slots.read(part.constants))
        self._interrupted = executable.compilation.interrupted
        self._source = StepElements(context.queues.infeeds(part.infeeds), self._replicas, self._interrupted)
        self._outfeeds = context.queues.outfeeds(part.outfeeds)
        self._outputs: list[tuple[str, Arrays]] = []
        self._older_outputs: list[tuple[str, Arrays]] = []
        self._running: collections.deque[jax.Array] = collections.deque()
        self._limit = self._last = 0
        self._error: BaseException | None = None

    def run(self, stopped: bool = False) -> tuple[Hidden, int, BaseException | None]:
        """Runs the pipeline to its end, or none of it where an earlier loop was `stopped` by an error.

        Returns:
            The hidden state, the number of micro-batches run, and the error that ended it early, or None. Micro-batches
            that had started by then are finished.
        """
        done = 0
        try:
            for timetable in () if stopped else self._passes:
                if self._error is None and self._interrupted():
                    self._error = KeyboardInterrupt()
                if self._error is None:
                    self._pass(timetable)
                    done += self._limit
            self._enqueue_outputs(self._older_outputs)
            self._enqueue_outputs(self._outputs)
            self._wait(0)
        except BaseException:
            self._settle()
            self._recorder.stop_clock()
            raise
        self._finish()
        return self._hidden_after(), done, self._error

    def _hidden_after(self) -> Hidden:
        """Returns the hidden state for the next part of the program, on its devices."""
        if SEED not in self._hidden:
            return self._hidden
        return {**self._hidden, SEED: together((self._state.seed,), self._home)[0]}

    def _place(self, carry: Arrays, constants: Arrays) -> None:
        """Moves every value to the devices of the stages that read it."""
        given = dict(zip(self._program.outer, constants, strict=True))
        given |= dict(zip(self._program.carried, carry, strict=True))
        for value, array in given.items():
            home = self._program.homes.get(value)
            for stage in self._routes.readers.get(value, ()) if home is None else (home,):
                self._state.values[value, self._on(stage)] = self._put(array, stage)

    def _on(self, stage: int) -> int:
        """Returns the device number of a stage."""
        return self._program.mapping[stage]

    def _put(self, array: Any, stage: int) -> jax.Array:
        return self._places[stage].place(array, 0)

    def _pass(self, timetable: Timetable) -> None:
        """Runs one pass through a timetable: the micro-batches of one weight update."""
        self._recorder.start_pass(timetable)
        self._limit = self._last = timetable.micro_batches
        updated = False  # The update tasks of the stages are dispatched together, with the first of them.
        for task in timetable.order():
            if task.kind is TaskKind.UPDATE:
                if self._error is None:
                    self._recorder.task(task)
                    if not updated:
                        self._update()
                    updated = True
            elif task.micro_batch is not None and task.micro_batch < self._limit:
                if self._leaves_before(task):
                    self._error, self._limit = KeyboardInterrupt(), task.micro_batch
                else:
                    self._segment(task, task.micro_batch)
        if not self._program.training and self._program.updates and self._error is None:
            self._update()  # sums of an outfeed's elements: inference has no task for them
        self._state.forget_micro_batches()
        self._enqueue_outputs(self._older_outputs)
        self._older_outputs, self._outputs = self._outputs, []

    def _leaves_before(self, task: Task) -> bool:
        """Returns whether Ctrl-C ends inference before the micro-batch of a task; training ends between updates."""
        begins = task.stage == 0 and task.kind is TaskKind.FORWARD and not self._program.training
        return begins and self._error is None and self._interrupted()

    def _segment(self, task: Task, micro_batch: int) -> None:
        """Runs one stage's forward or backward pass of one micro-batch."""
        index, device = self._routes.segment[task.kind, task.stage], self._on(task.stage)
        segment, state = self._program.segments[index], self._state
        elements = self._elements(segment, micro_batch)
        if elements is None:
            return
        outputs, states, hidden, enqueued, done = self._functions.segments[index](
            tuple(state.values[value, device] for value in segment.states),
            state.hidden[index],
            state.tokens[task.stage],
            tuple(state.values[value, device] for value in segment.constants),
            state.take(segment, micro_batch),
            self._seeds(task, segment, micro_batch),
            elements,
        )
        state.values.update({(v, device): a for v, a in zip(segment.states, states, strict=True)})
        state.hidden[index] = hidden
        self._deliver(index, segment, micro_batch, outputs)
        self._outputs.extend(enqueued.items())
        if self._part.most_steps is not None:
            self._enqueue_outputs(self._outputs)
        self._record(task, done)
        state.release(segment, micro_batch)
        self._running.append(done)
        self._wait(_AHEAD * len(self._program.segments))

    def _record(self, task: Task, done: jax.Array) -> None:
        """Records a dispatched pass, and what its stage keeps for later ones."""
        self._recorder.task(task)
        self._recorder.execution(task, done)
        if self._program.training:
            self._recorder.stashed(task.stage, *self._state.stashed(task.stage))

    def _elements(self, segment: StageSegment, micro_batch: int) -> dict[str, Arrays] | None:
        """Dequeues a pass's infeed elements; None if an infeed has ended, which ends the run."""
        try:
            with kept(self._lease):
                taken = self._source.take(segment.infeeds)
        except BaseException as error:  # noqa: B036 - raised again when the dispatched tasks have finished
            self._error, self._limit = error, micro_batch
            return None
        return {name: tuple(self._put(a, segment.stage) for a in arrays) for name, arrays in taken.items()}

    def _seeds(self, task: Task, segment: StageSegment, micro_batch: int) -> Arrays:
        """Returns the seeds of a pass's random draws: drawn when its micro-batch starts, the same as in one loop."""
        state = self._state
        if task.stage == 0 and task.kind is TaskKind.FORWARD and self._program.draws:
            state.seed, state.seeds[micro_batch] = self._functions.seeds(state.seed)
        return tuple(self._put(state.seeds[micro_batch][draw], task.stage) for draw in segment.draws)

    def _deliver(self, index: int, segment: StageSegment, micro_batch: int, outputs: Arrays) -> None:
        """Sends a pass's outputs to the stages that read them."""
        state = self._state
        if segment.kind is TaskKind.RECOMPUTE:
            state.repeated[segment.stage][micro_batch] = dict(zip(segment.outputs, outputs, strict=True))
            return
        for value, array, stages in zip(segment.outputs, outputs, self._routes.receivers[index], strict=True):
            for stage in stages:
                state.inbox[stage][micro_batch][value] = self._put(array, stage)
            if value in self._routes.for_update and micro_batch == self._last - 1:
                state.values[value, self._on(segment.stage)] = array
        if segment.kind is TaskKind.FORWARD and self._program.training:
            inbox = state.inbox[segment.stage][micro_batch]
            kept = self._routes.kept[segment.stage]
            state.stash[segment.stage][micro_batch] = {v: inbox.pop(v) for v in list(inbox) if v in kept}

    def _update(self) -> None:
        """Runs the weight updates of all stages."""
        state = self._state
        made: dict[int, tuple[jax.Array, int]] = {}
        for step, function in zip(self._program.updates, self._functions.updates, strict=True):
            given = {value: self._update_input(value, step, made) for value in step.inputs}
            taken = {value: given.pop(value) for value in step.taken}
            outputs, enqueued, done = function(taken, given, state.tokens[step.stage])
            made.update({value: (array, step.stage) for value, array in zip(step.outputs, outputs, strict=True)})
            self._outputs.extend(enqueued.items())
            self._recorder.execution(Task(TaskKind.UPDATE, step.stage), done)
            self._running.append(done)
        given_away: set[int] = set()
        for weight, value in self._program.written.items():
            array, _ = made[value]
            home = self._program.homes[weight]
            own = jnp.array(array, copy=True) if value in given_away else array
            state.values[weight, self._on(home)] = self._put(own, home)
            given_away.add(value)

    def _update_input(self, value: int, step: UpdateStep, made: dict[int, tuple[jax.Array, int]]) -> jax.Array:
        """Returns a value on the device of an update step."""
        if value in made:
            array = made[value][0]
        elif value in self._program.accumulators:
            index, key = self._program.accumulators[value]
            array = self._state.hidden[index][key]
        else:
            array = self._state.found(value, self._on(step.stage))
        return self._put(array, step.stage)

    def _enqueue_outputs(self, outputs: list[tuple[str, Arrays]]) -> None:
        """Enqueues elements to their outfeeds, in order."""
        by_queue: dict[str, list[Arrays]] = {}
        for name, element in outputs:
            by_queue.setdefault(name, []).append(element)
        outputs.clear()
        for name, elements in by_queue.items():
            queue = self._outfeeds[name]
            if queue.last_only:
                queue.put(elements[-1], len(elements))
            else:
                tensors = zip(*elements, strict=True)
                queue.put([np.stack([np.asarray(a) for a in t]) for t in tensors], len(elements))

    def _wait(self, ahead: int) -> None:
        """Waits until at most some tasks are unfinished."""
        while len(self._running) > ahead:
            self._running.popleft().block_until_ready()

    def _settle(self) -> None:
        """Waits for dispatched tasks after an error, so that the next run starts on idle devices."""
        while self._running:
            # Tasks after the one that failed fail with it; its error is on its way already.
            with contextlib.suppress(Exception):
                self._running.popleft().block_until_ready()

    def _finish(self) -> None:
        """Stores the loop's carried values in slots, and records the counts of the run."""
        state, homes = self._state, self._program.homes
        carry = [
            state.values[value, self._on(homes[value])] if value in homes else given
            for value, given in zip(self._program.carried, self._carry, strict=True)
        ]
        self._slots.fill(self._part.carry_out, carry)
        sizes = [0] * self._program.stages
        for value, stage in homes.items():
            sizes[stage] += state.values[value, self._on(stage)].nbytes // self._replicas
        self._recorder.weights = tuple(sizes)
        record(self._recorder.counts())
