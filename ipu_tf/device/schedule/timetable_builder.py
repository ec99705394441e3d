"""Builds a timetable from the ticks at which micro-batches start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ipu_tf.device.schedule.pipeline_shape import PipelineShape
from ipu_tf.device.schedule.schedule_rules import start_offsets
from ipu_tf.device.schedule.timetable import Cell, Phases, Recomputation, Schedule, Task, TaskKind, Timetable

#: In a tick a device first goes backward, then forward, and last repeats forward passes for the next tick: what a
#: backward pass frees is free before a forward pass fills it.
_ORDER = {TaskKind.BACKWARD: 0, TaskKind.FORWARD: 1, TaskKind.RECOMPUTE: 2, TaskKind.UPDATE: 3}


def build(schedule: Schedule, shape: PipelineShape, starts: int, parts: int = 1) -> Timetable:
    """Builds the timetable of a pipeline, without checks.

    Args:
        schedule: the schedule.
        shape: the pipeline.
        starts: how many times a batch enters the pipeline.
        parts: of how many micro-batches each such batch consists, which a stage takes one after the other in its tick.
    """
    offsets = start_offsets(schedule, shape)
    tasks: dict[int, list[Task]] = defaultdict(list)
    for batch in range(starts):
        start = batch // len(offsets) * shape.period + offsets[batch % len(offsets)]
        for since, kind, stage in _passes(shape):
            tasks[start + since] += (Task(kind, stage, batch * parts + part) for part in range(parts))
    end = max(tasks) + 1
    if shape.training:
        tasks[end] = [Task(TaskKind.UPDATE, stage) for stage in range(shape.stages)]
    return Timetable(
        schedule=schedule,
        training=shape.training,
        recomputation=shape.recomputation,
        micro_batches=starts * parts,
        stage_devices=shape.stage_devices,
        cells=tuple(_row(tasks[tick], shape) for tick in range(end + shape.training)),
        phases=_phases(schedule, shape, starts // len(offsets) * shape.period, end),
    )


def _passes(shape: PipelineShape) -> Iterator[tuple[int, TaskKind, int]]:
    """Lists the passes of one micro-batch: (ticks since it started, kind, stage)."""
    for stage in range(shape.stages):
        yield stage, TaskKind.FORWARD, stage
        if not shape.training:
            continue
        backward = shape.period - 1 - stage
        if shape.recomputation is not Recomputation.NONE and stage < shape.stages - 1:
            yield backward - (shape.recomputation is Recomputation.THEN_BACKPROPAGATE), TaskKind.RECOMPUTE, stage
        yield backward, TaskKind.BACKWARD, stage


def _row(tasks: list[Task], shape: PipelineShape) -> tuple[Cell, ...]:
    """Builds a row of the timetable, one tick: the tasks of each device, in order."""
    joined = shape.recomputation is Recomputation.WITH_BACKPROPAGATE
    ordered = sorted(tasks, key=lambda task: _rank(task, joined))
    where = shape.stage_devices
    return tuple(tuple(task for task in ordered if device in where[task.stage]) for device in range(shape.device_count))


def _rank(task: Task, joined: bool) -> tuple[int, int, int, int]:
    """Sort key of tasks within a tick: backward passes from stage 0 on, forward passes from the last stage on."""
    number = 0 if task.micro_batch is None else task.micro_batch
    if joined and task.kind is TaskKind.RECOMPUTE:
        # Immediately before the backward pass that it is for.
        return _ORDER[TaskKind.BACKWARD], task.stage, number, 0
    descending = task.kind in (TaskKind.FORWARD, TaskKind.RECOMPUTE)
    return _ORDER[task.kind], -task.stage if descending else task.stage, number, 1


def _phases(schedule: Schedule, shape: PipelineShape, full: int, end: int) -> Phases:
    """Splits the ticks into phases: ramp-up, the steady block that is repeated, ramp-down, update."""
    update = range(end, end + shape.training)
    if schedule is Schedule.SEQUENTIAL:
        return Phases(range(0), range(end), range(end, end), update)
    return Phases(range(shape.period), range(shape.period, full), range(full, end), update)
