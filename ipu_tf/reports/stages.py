"""`stage_memory`: the bytes of each stage of a pipeline at each tick of its timetable.

Values move as in a run on several devices: what a task makes reaches other stages at the end of its tick, a stage
stashes what its backward pass takes, and forgets it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax

from ipu_tf.device.memory.hidden_state import ACCUMULATOR, SEED_TYPE, readable_key
from ipu_tf.device.program.program import bytes_of
from ipu_tf.device.program.stage_program import StageProgram, StageSegment, UpdateStep
from ipu_tf.device.run.pipeline_routes import Routes, routes
from ipu_tf.device.schedule.timetable import Task, TaskKind, Timetable
from ipu_tf.reports.liveness import Input, part_of
from ipu_tf.reports.part import Category, StageMemory, Value

Given = Mapping[int, tuple[Input, Any]]
"""Values of a pipeline that no micro-batch makes, by number: what they are, and their types."""
Axes = list[tuple[Any, int]] | None
_ORDER = {TaskKind.FORWARD: 0, TaskKind.RECOMPUTE: 1, TaskKind.BACKWARD: 2}
"""In which passes of a micro-batch can be traced, one after those whose values it takes."""
_Waiting = dict[int, set[int]]
"""Values by micro-batch."""


def stage_memory(program: StageProgram, timetable: Timetable, given: Given, axes: Axes) -> tuple[StageMemory, ...]:
    """Returns the memory of each stage.

    Args:
        program: the pipeline.
        timetable: of one weight update.
        given: what its loop carries and reads.
        axes: names and sizes of axes that collectives of its operations go over.
    """
    costs = _Costs(program, {value: types for value, (_, types) in given.items()}, axes)
    found = _Movement(program, timetable, costs).run().found
    return tuple(
        StageMemory(stage, ipu, tuple(_resident(program, stage, given, timetable.ticks)), *zip(*series, strict=True))
        for stage, (ipu, series) in enumerate(zip(program.mapping, found, strict=True))
    )


def _resident(program: StageProgram, stage: int, given: Given, ticks: int) -> Iterable[Value]:
    """Yields the values that live with a stage, or that it reads and none owns; and its hidden state."""
    read = {value for each in program.segments if each.stage == stage for value in (*each.constants, *each.states)}
    read |= {value for each in program.updates if each.stage == stage for value in each.inputs}
    read |= {value for value, home in program.homes.items() if home == stage}
    for value in sorted(read & given.keys()):
        if program.homes.get(value, stage) == stage:
            each = given[value][0]
            yield Value(each.name, each.category, each.bytes, 0, ticks - 1)
    for segment in program.segments:
        for key, struct in segment.hidden.items() if segment.stage == stage else ():
            category = Category.ACCUMULATORS if key.startswith(ACCUMULATOR) else Category.HIDDEN
            yield Value(readable_key(key), category, bytes_of((struct,)), 0, ticks - 1)


class _Costs:
    """Bytes that passes and the update need for themselves, and those of the values that they make.

    Args:
        program: the pipeline.
        types: types of the values that no micro-batch makes.
        axes: of collectives.

    Attributes:
        bytes: of each value.
        needs: of each segment what it makes and needs for itself.
        updates: of each stage what its update needs for itself.
    """

    def __init__(self, program: StageProgram, types: Mapping[int, Any], axes: Axes) -> None:
        self._types = dict(types)
        self._axes = axes
        for value, (index, key) in program.accumulators.items():
            self._types[value] = program.segments[index].hidden[key]
        order = sorted(enumerate(program.segments), key=lambda each: _ORDER[each[1].kind])
        self.needs = {index: self._segment(each) for index, each in order}
        self.updates = [0] * program.stages
        for step in program.updates:
            self.updates[step.stage] = max(self.updates[step.stage], self._update(step))
        self.bytes = {value: bytes_of((each,)) for value, each in self._types.items()}

    def _of(self, values: Iterable[int]) -> tuple[Any, ...]:
        return tuple(self._types[value] for value in values)

    def _segment(self, segment: StageSegment) -> int:
        replaced = self._of(segment.states), dict(segment.hidden)
        read = self._of(segment.constants), self._of(segment.inputs)
        others = (SEED_TYPE,) * len(segment.draws), dict(segment.infeeds)
        needs, (made, *_) = self._traced(segment.run, replaced, (*read, *others))
        self._types.update(zip(segment.outputs, made, strict=True))
        return needs

    def _update(self, step: UpdateStep) -> int:
        given = dict(zip(step.inputs, self._of(step.inputs), strict=True))
        taken = {value: given.pop(value) for value in step.taken}
        needs, (made, _) = self._traced(step.run, (taken,), (given,))
        self._types.update(zip(step.outputs, made, strict=True))
        return needs

    def _traced(self, run: Any, replaced: tuple[Any, ...], read: tuple[Any, ...]) -> tuple[int, Any]:
        """Returns the bytes that a function needs besides its arguments, and the types of its results.

        New values of those that are replaced take their place.
        """
        closed, made = jax.make_jaxpr(run, axis_env=self._axes, return_shape=True)(*replaced, *read)
        sizes = [bytes_of((each,)) for each in jax.tree.leaves(replaced)]
        there = [Input("replaced", Category.STATE, size) for size in sizes]
        there += [Input("read", Category.READ, 0) for _ in jax.tree.leaves(read)]
        results = [Category.TEMPORARIES] * len(closed.jaxpr.outvars)
        return max(part_of("pass", closed.jaxpr, there, results).peak - sum(sizes), 0), made


class _Movement:
    """Values on their way through the stages, as bytes.

    Attributes:
        found: of each stage for each tick the bytes of stashes, temporaries and feeds.
    """

    def __init__(self, program: StageProgram, timetable: Timetable, costs: _Costs) -> None:
        self._program, self._timetable, self._costs = program, timetable, costs
        self._routes: Routes = routes(program)
        stages = range(program.stages)
        self._inbox: list[_Waiting] = [{} for _ in stages]
        self._stash: list[_Waiting] = [{} for _ in stages]
        self._again: list[_Waiting] = [{} for _ in stages]
        self._for_update: list[set[int]] = [set() for _ in stages]
        self.found: list[list[tuple[int, int, int]]] = [[] for _ in stages]

    def run(self) -> _Movement:
        """Runs all ticks; returns itself."""
        for row in self._timetable.cells:
            now = [[self._now(stage)] for stage in range(self._program.stages)]
            sent: list[tuple[int, int, int]] = []  # it arrives at the end of the tick
            for task in dict.fromkeys(task for cell in row for task in cell):
                now[task.stage].append(self._task(task, sent))
            for stage, moments in enumerate(now):
                self.found[stage].append(max(moments[1:] or moments, key=sum))
            for stage, micro_batch, value in sent:
                self._inbox[stage].setdefault(micro_batch, set()).add(value)
        return self

    def _now(self, stage: int, needs: int = 0, feeds: int = 0) -> tuple[int, int, int]:
        """Returns the bytes of a stage's stashes, temporaries and feeds."""
        stashed = self._bytes(*self._stash[stage].values(), *self._again[stage].values())
        waiting = self._bytes(*self._inbox[stage].values(), self._for_update[stage])
        return stashed, waiting + needs, feeds

    def _bytes(self, *groups: Iterable[int]) -> int:
        return sum(self._costs.bytes[value] for group in groups for value in group)

    def _task(self, task: Task, sent: list[tuple[int, int, int]]) -> tuple[int, int, int]:
        """Moves the values of a task; returns the stage's bytes while it runs."""
        stage, number = task.stage, task.micro_batch
        if number is None:
            return self._now(stage, self._costs.updates[stage])
        index = self._routes.segment[task.kind, stage]
        segment = self._program.segments[index]
        held = self._deliver(index, segment, number, sent)
        dequeued, enqueued = (sum(map(bytes_of, each.values())) for each in (segment.infeeds, segment.outfeeds))
        needs = max(self._costs.needs[index] - self._bytes(held) - enqueued, 0)
        now = self._now(stage, needs, dequeued + enqueued)
        if task.kind is TaskKind.BACKWARD:
            self._stash[stage].pop(number, None)
            self._again[stage].pop(number, None)
        if task.kind is not TaskKind.RECOMPUTE:
            self._inbox[stage].pop(number, None)
        return now

    def _deliver(self, index: int, segment: StageSegment, number: int, sent: list[tuple[int, int, int]]) -> set[int]:
        """Sends what a pass makes to other stages; returns what its own keeps of it."""
        stage = segment.stage
        if segment.kind is TaskKind.RECOMPUTE:
            self._again[stage][number] = set(segment.outputs)
            return set(segment.outputs)
        own: set[int] = set()
        for value, stages in zip(segment.outputs, self._routes.receivers[index], strict=True):
            own |= {value} & {value for each in stages if each == stage}
            sent += [(each, number, value) for each in stages if each != stage]
            if value in self._routes.for_update and number == self._timetable.micro_batches - 1:
                self._for_update[stage].add(value)
        inbox = self._inbox[stage].setdefault(number, set())
        inbox |= own
        if segment.kind is TaskKind.FORWARD and self._program.training:
            self._stash[stage][number] = inbox & self._routes.kept[stage]
            inbox -= self._routes.kept[stage]
        return own
