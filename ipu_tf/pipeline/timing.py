"""Start and end times of a timetable's tasks, and the pipeline bubble.

A tick lasts as long as the device that has most to do in it: all devices exchange data at its end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ipu_tf.device.schedule.timetable import Cell, Task, Timetable
from ipu_tf.pipeline.costs import StageTimes


@dataclasses.dataclass(frozen=True)
class Planned:
    """A task with its planned time, in the unit of the stages' times.

    Attributes:
        task: what is done.
        device: where.
        tick: in which tick.
        start: when it starts; the execution starts at 0.
        end: when it ends.
    """

    task: Task
    device: int
    tick: int
    start: float
    end: float


@dataclasses.dataclass(frozen=True)
class Bubble:
    """Idle time of devices. The cells leave the weight update out; the time includes it.

    Attributes:
        idle_cells: cells of the timetable (a device in a tick) in which nothing is done.
        cells: cells of the timetable.
        busy_time: the time devices compute, summed over devices.
        time: how long the execution takes.
        devices: how many devices there are.
    """

    idle_cells: int
    cells: int
    busy_time: float
    time: float
    devices: int

    @property
    def cell_share(self) -> float:
        """The share of cells that are idle, 0 to 1: the bubble as it is usually counted."""
        return self.idle_cells / self.cells

    @property
    def time_share(self) -> float:
        """The share of all devices' time in which they wait, 0 to 1; also for devices that do more in the same tick."""
        return 1.0 - self.busy_time / (self.time * self.devices) if self.time else 0.0


def stage_times(timetable: Timetable, times: Sequence[StageTimes] | None) -> tuple[StageTimes, ...]:
    """One entry for each stage: those given, or the defaults.

    Raises:
        ValueError: another number of entries than stages.
    """
    if times is None:
        return (StageTimes(),) * timetable.stages
    if len(times) != timetable.stages:
        raise ValueError(f"There must be times for each of the {timetable.stages} stages. Received: {len(times)}.")
    return tuple(times)


def tick_lengths(timetable: Timetable, times: Sequence[StageTimes] | None = None) -> tuple[float, ...]:
    """Computes the length of each tick: that of the busiest device.

    Args:
        timetable: the timetable.
        times: how long the passes of each stage take; by default 1 forward, 2 backward, 1 recomputed, 0 to update.

    Raises:
        ValueError: another number of times than stages.
    """
    known = stage_times(timetable, times)
    return tuple(max(_length(cell, known) for cell in row) for row in timetable.cells)


def plan(timetable: Timetable, times: Sequence[StageTimes] | None = None) -> tuple[Planned, ...]:
    """Every task with its planned time, by tick, device and position. Arguments and errors as for `tick_lengths`."""
    known = stage_times(timetable, times)
    planned, start = [], 0.0
    for tick, (row, length) in enumerate(zip(timetable.cells, tick_lengths(timetable, known), strict=True)):
        for device, cell in enumerate(row):
            now = start
            for task in cell:
                end = now + known[task.stage].of(task)
                planned.append(Planned(task, device, tick, now, end))
                now = end
        start += length
    return tuple(planned)


def bubble(timetable: Timetable, times: Sequence[StageTimes] | None = None) -> Bubble:
    """Computes the idle time of devices. Arguments and errors as for `tick_lengths`.

    Example:
        >>> from ipu_tf.pipeline import PipelineShape, grouped
        >>> bubble(grouped(PipelineShape(4, training=False), 4)).cell_share  # (N - 1) / (M + N - 1) = 3 / 7
        0.42857142857142855
    """
    known = stage_times(timetable, times)
    rows = [row for tick, row in enumerate(timetable.cells) if tick not in timetable.phases.update]
    return Bubble(
        idle_cells=sum(not cell for row in rows for cell in row),
        cells=sum(len(row) for row in rows),
        busy_time=sum(_length(cell, known) for row in timetable.cells for cell in row),
        time=sum(tick_lengths(timetable, known)),
        devices=timetable.devices,
    )


def _length(cell: Cell, times: Sequence[StageTimes]) -> float:
    return sum(times[task.stage].of(task) for task in cell)
