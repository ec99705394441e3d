"""Draws a timetable as text for a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import groupby

from ipu_tf.device.schedule.timetable import Cell, Timetable

#: What a cell of a device that does nothing in a tick shows.
IDLE = "·"


@dataclasses.dataclass(frozen=True)
class _Column:
    """A column of the picture: a tick, or a bar between two phases.

    Attributes:
        phase: the phase the tick is in; empty for a bar.
        entries: the tick's number and what is in each lane, all of the same length.
    """

    phase: str
    entries: tuple[str, ...]


def timetable_text(timetable: Timetable, width: int | None = None) -> str:
    """A timetable as a picture of letters: a column a tick, a row for each stage on each of its devices.

    `F3` is the forward pass of micro-batch 3, `R3` its repetition, `B3` its backward pass and `U` the weight update;
    several in a cell are done from left to right. A dot is a tick in which the whole device is idle.

    Args:
        timetable: the timetable.
        width: the longest line in characters; longer timetables continue below. By default they are not broken.

    Example:
        >>> from ipu_tf.pipeline import PipelineShape, grouped
        >>> print(timetable_text(grouped(PipelineShape(2, training=False), 2)))
        grouped, inference, 2 stages on 2 IPUs, 2 micro-batches, 3 ticks
                        ramp-up | ramp-down
        tick            0   1   | 2
        IPU 0  stage 0  F0  F1  | ·
        IPU 1  stage 1  ·   F0  | F1
    """
    labels = ["tick", *lane_labels(timetable)]
    margin = max(map(len, labels)) + 2
    pictures = []
    for block in _blocks(_columns(timetable), None if width is None else width - margin):
        rows = zip(labels, zip(*(column.entries for column in block), strict=True), strict=True)
        lines = [" " * margin + _phase_line(block), *(label.ljust(margin) + "".join(row) for label, row in rows)]
        pictures.append("\n".join(line.rstrip(" |") for line in lines))
    return "\n".join([title(timetable), "\n\n".join(pictures)])


def title(timetable: Timetable) -> str:
    """A line that names a timetable: schedule, direction, stages, devices, micro-batches, ticks, recomputation."""
    how = "" if not timetable.training or timetable.recomputation.name == "NONE" else timetable.recomputation.value
    parts = [
        timetable.schedule.name.lower(),
        "training" if timetable.training else "inference",
        f"{_many(timetable.stages, 'stage')} on {_many(timetable.devices, 'IPU')}",
        _many(timetable.micro_batches, "micro-batch", "micro-batches"),
        _many(timetable.ticks, "tick"),
        how,
    ]
    return ", ".join(filter(None, parts))


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


def lanes(timetable: Timetable) -> Iterator[tuple[int, int]]:
    """(device, stage) of each row of a picture: a row for each stage on each of its devices, device by device."""
    for device in range(timetable.devices):
        for stage in range(timetable.stages):
            if device in timetable.stage_devices[stage]:
                yield device, stage


def lane_labels(timetable: Timetable) -> list[str]:
    """Labels of the `lanes`, such as `IPU 0  stage 2`."""
    width = len(str(timetable.devices - 1))
    return [f"IPU {device:<{width}}  stage {stage}" for device, stage in lanes(timetable)]


def _columns(timetable: Timetable) -> list[_Column]:
    """A column for each tick, and a bar before each phase but the first."""
    rows = list(lanes(timetable))
    columns: list[_Column] = []
    for name, ticks in timetable.phases.named():
        if columns:
            columns.append(_Column("", ("| ",) * (len(rows) + 1)))
        for tick in ticks:
            entries = [str(tick), *(_entry(timetable.cells[tick][device], stage) for device, stage in rows)]
            # The last column is widened where the phase is too short for its name.
            least = 1 + len(name) - 4 * (len(ticks) - 1) if tick == ticks[-1] else 0
            width = max(least, 2 + max(map(len, entries)))
            columns.append(_Column(name, tuple(entry.ljust(width) for entry in entries)))
    return columns


def _entry(cell: Cell, stage: int) -> str:
    """Text of one stage in a cell; a dot if the whole device is idle."""
    return " ".join(task.label for task in cell if task.stage == stage) or ("" if cell else IDLE)


def _phase_line(block: Sequence[_Column]) -> str:
    """The names of a block's phases, each above the first of its ticks in the block."""
    parts = []
    for name, columns in groupby(block, key=lambda column: column.phase):
        room = sum(len(column.entries[0]) for column in columns)
        shown = name if len(name) < room else name[: room - 2] + "…"
        parts.append(shown.ljust(room) if name else "| ")
    return "".join(parts)


def _blocks(columns: Sequence[_Column], room: int | None) -> Iterator[list[_Column]]:
    """The columns in as many blocks as are needed for none to be wider than `room` characters."""
    block: list[_Column] = []
    used = 0
    for column in columns:
        width = len(column.entries[0])
        if block and room is not None and used + width > room:
            yield block
            block, used = [], 0
        if block or column.phase:
            block.append(column)
            used += width
    yield block
