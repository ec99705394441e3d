"""Checks a timetable: every task runs exactly once, after the tasks it depends on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from ipu_tf.device.errors import DeviceError
from ipu_tf.device.schedule.timetable import Placed, Task, TaskKind, Timetable


class TimetableError(DeviceError, ValueError):
    """Raised for a wrong timetable.

    Attributes:
        problems: everything that is wrong with it, a sentence each.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("The timetable is wrong: " + " ".join(problems))


def check(timetable: Timetable) -> None:
    """Raises an error for a wrong timetable.

    Raises:
        TimetableError: with everything that `problems` finds.
    """
    found = problems(timetable)
    if found:
        raise TimetableError(found)


def problems(timetable: Timetable) -> tuple[str, ...]:
    """Lists the errors of a timetable, a sentence each; empty if it is right.

    It is right if every task runs once on each of its stage's devices, at one tick, and nowhere else; if a stage gets
    its input, forward or backward, in an earlier tick; if a stage's passes of a micro-batch follow each other; and if
    the weights are updated after everything else.
    """
    wanted = _wanted(timetable)
    found = list(_miscounted(timetable, wanted))
    places = {placed.task: placed for placed in timetable.placed() if placed.task in wanted}
    if not found:
        found.extend(_out_of_order(timetable, places))
    return tuple(found)


def _wanted(timetable: Timetable) -> set[Task]:
    stages = range(timetable.stages)
    wanted = {Task(TaskKind.FORWARD, s, m) for s in stages for m in range(timetable.micro_batches)}
    if timetable.training:
        wanted |= {Task(TaskKind.BACKWARD, task.stage, task.micro_batch) for task in wanted}
        wanted |= {
            Task(TaskKind.RECOMPUTE, s, m)
            for s in stages
            if timetable.recomputes(s)
            for m in range(timetable.micro_batches)
        }
        wanted |= {Task(TaskKind.UPDATE, s) for s in stages}
    return wanted


def _miscounted(timetable: Timetable, wanted: set[Task]) -> Iterator[str]:
    """Finds tasks that are missing, repeated, unexpected, on a wrong device, or at several ticks."""
    runs: Counter[tuple[Task, int]] = Counter()
    ticks: dict[Task, set[int]] = defaultdict(set)
    for placed in timetable.placed():
        runs[placed.task, placed.device] += 1
        ticks[placed.task].add(placed.tick)
    expected = {(task, device) for task in wanted for device in timetable.stage_devices[task.stage]}
    wrong = [pair for pair in expected | set(runs) if runs[pair] != (pair in expected)]
    for task, device in sorted(wrong, key=str):
        times, right = runs[task, device], int((task, device) in expected)
        yield f"{_name(task)} runs {times} times on device {device}, where it should run {right} times."
    for task in sorted((task for task, at in ticks.items() if len(at) > 1), key=str):
        yield f"{_name(task)} runs at several ticks: {sorted(ticks[task])}."


def _out_of_order(timetable: Timetable, places: dict[Task, Placed]) -> Iterator[str]:
    """Finds tasks that run before a task they depend on."""
    last = max((p.tick for p in places.values() if p.task.kind is not TaskKind.UPDATE), default=-1)
    for task, placed in places.items():
        if task.kind is TaskKind.UPDATE and placed.tick <= last:
            yield f"{_name(task)} at tick {placed.tick} is not after everything else, which ends with tick {last}."
        for need, same_tick in _needs(timetable, task):
            before = places[need]
            ready = before.tick < placed.tick or (
                same_tick and before.tick == placed.tick and before.position < placed.position
            )
            if not ready:
                yield f"{_name(task)} at tick {placed.tick} needs {_name(need)}, which is at tick {before.tick}."


def _needs(timetable: Timetable, task: Task) -> Iterator[tuple[Task, bool]]:
    """Returns a task's dependencies, and whether it may follow each in the same tick: not if data has to be sent."""
    stage, number = task.stage, task.micro_batch
    if task.kind is TaskKind.FORWARD and stage > 0:
        yield Task(TaskKind.FORWARD, stage - 1, number), False
    elif task.kind is TaskKind.RECOMPUTE:
        yield Task(TaskKind.FORWARD, stage, number), True
    elif task.kind is TaskKind.BACKWARD:
        if stage < timetable.stages - 1:
            yield Task(TaskKind.BACKWARD, stage + 1, number), False
        kind = TaskKind.RECOMPUTE if timetable.recomputes(stage) else TaskKind.FORWARD
        yield Task(kind, stage, number), True


def _name(task: Task) -> str:
    return f"{task.label} of stage {task.stage}"
