"""Memory of a pipeline: stashed activations at each tick, peak bytes.

A micro-batch is stashed by a stage from its forward to its backward pass: the stage's input, and with it either all the
activations of the forward pass or, if these are recomputed, only its checkpoints. What a running pass needs for itself
alone is not counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from ipu_tf.device.schedule.timetable import Recomputation, Task, TaskKind, Timetable
from ipu_tf.pipeline.costs import StageCosts


@dataclasses.dataclass(frozen=True)
class Moment:
    """Memory of a device during a task.

    Attributes:
        tick: when.
        device: which device.
        task: what it does.
        held: for each stage how many micro-batches it stashes; 0 for stages of other devices.
        whole: for each stage how many of these have all their activations there.
    """

    tick: int
    device: int
    task: Task
    held: tuple[int, ...]
    whole: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Peak:
    """Peak memory of a device or stage, in bytes.

    Attributes:
        resident_bytes: of these, bytes that are there all the time.
        stashed_bytes: of these, stashed and recomputed activations.
        tick: the first tick at which it is so.
    """

    resident_bytes: int
    stashed_bytes: int
    tick: int

    @property
    def total_bytes(self) -> int:
        """All of them."""
        return self.resident_bytes + self.stashed_bytes


def stash(timetable: Timetable) -> tuple[tuple[int, ...], ...]:
    """Counts the stashed micro-batches of each stage at the end of each tick, `[ticks][stages]`; all 0 in inference.

    Example:
        >>> from ipu_tf.pipeline import PipelineShape, interleaved
        >>> stash(interleaved(PipelineShape(2), 2))
        ((1, 0), (1, 1), (2, 0), (1, 1), (1, 0), (0, 0), (0, 0))
    """
    change = [[0] * timetable.stages for _ in range(timetable.ticks)]
    if timetable.training:
        for task, tick in dict.fromkeys((placed.task, placed.tick) for placed in timetable.placed()):
            change[tick][task.stage] += (task.kind is TaskKind.FORWARD) - (task.kind is TaskKind.BACKWARD)
    rows, now = [], [0] * timetable.stages
    for changes in change:
        now = [before + by for before, by in zip(now, changes, strict=True)]
        rows.append(tuple(now))
    return tuple(rows)


def peak_stash(timetable: Timetable) -> tuple[int, ...]:
    """The most micro-batches each stage has stashed at the end of a tick: the places its stash needs.

    Of N stages in training, stage s needs 2 (N - s) - 1 if grouped, N - s if interleaved and 1 if sequential.
    """
    return tuple(max(column) for column in zip(*stash(timetable), strict=True))


def moments(timetable: Timetable) -> Iterator[Moment]:
    """Yields the memory of each device during each of its tasks, without the weight update's."""
    for device in range(timetable.devices):
        held, whole = [0] * timetable.stages, [0] * timetable.stages
        for tick, row in enumerate(timetable.cells):
            for task in row[device]:
                if task.kind is TaskKind.UPDATE:
                    continue
                held[task.stage] += task.kind is TaskKind.FORWARD
                whole[task.stage] += _completes(timetable, task)
                yield Moment(tick, device, task, tuple(held), tuple(whole))
                if task.kind is TaskKind.BACKWARD:
                    whole[task.stage] -= 1
                held[task.stage] -= _releases(timetable, task)


def _completes(timetable: Timetable, task: Task) -> bool:
    """Returns whether this task completes the activations of a micro-batch."""
    if task.kind is TaskKind.RECOMPUTE:
        return True
    return task.kind is TaskKind.FORWARD and timetable.training and not timetable.recomputes(task.stage)


def _releases(timetable: Timetable, task: Task) -> bool:
    """Returns whether this task is the last that needs a micro-batch."""
    return task.kind is TaskKind.BACKWARD or (task.kind is TaskKind.FORWARD and not timetable.training)


def stage_peaks(timetable: Timetable, costs: Sequence[StageCosts]) -> tuple[Peak, ...]:
    """The most bytes each stage has at once, on all its devices together.

    Raises:
        ValueError: another number of costs than stages.
    """
    return _peaks(timetable, costs, [(stage,) for stage in range(timetable.stages)], spread=False)


def device_peaks(timetable: Timetable, costs: Sequence[StageCosts]) -> tuple[Peak, ...]:
    """The most bytes each device has at once; a stage on several devices is spread over them evenly.

    Raises:
        ValueError: another number of costs than stages.
    """
    on_device = [
        tuple(stage for stage, devices in enumerate(timetable.stage_devices) if device in devices)
        for device in range(timetable.devices)
    ]
    return _peaks(timetable, costs, on_device, spread=True)


def _peaks(
    timetable: Timetable, costs: Sequence[StageCosts], groups: Sequence[tuple[int, ...]], spread: bool
) -> tuple[Peak, ...]:
    """The peak of each group of stages; with `spread` group i is what is on device i."""
    if len(costs) != timetable.stages:
        raise ValueError(f"There must be costs for each of the {timetable.stages} stages. Received: {len(costs)}.")
    sharers = [len(devices) if spread else 1 for devices in timetable.stage_devices]
    most, ticks = [0] * len(groups), [0] * len(groups)
    for moment in moments(timetable):
        group = moment.device if spread else moment.task.stage
        now = sum(
            -(-_stashed_bytes(timetable, moment, stage, costs[stage]) // sharers[stage]) for stage in groups[group]
        )
        if now > most[group]:
            most[group], ticks[group] = now, moment.tick
    resident = [
        sum(-(-costs[stage].resident_bytes(timetable.training) // sharers[stage]) for stage in group)
        for group in groups
    ]
    return tuple(map(Peak, resident, most, ticks))


def _stashed_bytes(timetable: Timetable, moment: Moment, stage: int, costs: StageCosts) -> int:
    kept, whole = costs.input_bytes, costs.activation_bytes
    if timetable.recomputes(stage):
        kept += costs.checkpoint_bytes
        whole -= costs.checkpoint_bytes
        if timetable.recomputation is Recomputation.WITH_BACKPROPAGATE and costs.segment_bytes is not None:
            whole = costs.segment_bytes
    return moment.held[stage] * kept + moment.whole[stage] * whole
