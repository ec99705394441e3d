"""Lanes of measured tasks in a timetable's SVG picture: when each one ran on the machine that measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ipu_tf.device.run.pipeline_timer import Measured
from ipu_tf.device.schedule.timetable import Timetable
from ipu_tf.pipeline.svg_boxes import box, idle_box, time_mark
from ipu_tf.pipeline.svg_layout import BETWEEN, LANE, round_step
from ipu_tf.pipeline.text import lane_labels, lanes


def measured_lanes(
    timetable: Timetable, measured: Sequence[Measured], left: float, top: float, width: float
) -> Iterator[str]:
    """Yields what a picture shows of measured tasks: a lane for each stage on each of its devices, idle time shaded.

    Args:
        timetable: what the tasks belong to.
        measured: the tasks.
        left: where lanes begin, in pixels.
        top: their upper edge; the line above it says how long they took.
        width: of the lanes: the whole time.

    Raises:
        ValueError: a task ends before it starts, or is of a stage that its device does not have.
    """
    rows = {row: top + number * LANE for number, row in enumerate(lanes(timetable))}
    _check(measured, timetable, rows)
    bottom, end = top + len(rows) * LANE, max(one.end for one in measured)
    scale = width / end if end else 0.0
    busy = sum(one.end - one.start for one in measured)
    idle = 1 - busy / (end * timetable.devices) if end else 0.0
    yield f'<text class="ipu-dim" x="{left:g}" y="{top - 8:g}">measured: {1e3 * end:.3g} ms, {idle:.0%} idle</text>'
    for y, label in zip(rows.values(), lane_labels(timetable), strict=True):
        yield f'<text class="ipu-text" x="8" y="{y + 0.65 * LANE:g}">{label}</text>'
    for (device, _), y in rows.items():
        for start, length in _gaps(measured, device, end):
            yield idle_box(left + scale * start, y + 2, scale * length)
    for one in measured:
        length = one.end - one.start
        y = rows[one.device, one.task.stage] + 2
        yield box(one.task, f"{1e3 * length:.3g} ms", left + scale * one.start, y, scale * length)
    yield f'<text class="ipu-dim" x="8" y="{bottom + 16:g}">milliseconds</text>'
    for milliseconds in _axis(1e3 * end, width):
        yield time_mark(left + scale * milliseconds / 1e3, bottom, f"{milliseconds:g}")


def _check(measured: Sequence[Measured], timetable: Timetable, rows: dict[tuple[int, int], float]) -> None:
    for one in measured:
        if one.end < one.start:
            raise ValueError(f"A measured task must not end before it starts. Received: {one}.")
        if (one.device, one.task.stage) not in rows:
            raise ValueError(
                f"Measured tasks must be of the timetable, which has {timetable.stages} stages on {timetable.devices} "
                f"IPUs. Received: {one}."
            )


def _gaps(measured: Sequence[Measured], device: int, end: float) -> Iterator[tuple[float, float]]:
    """Yields start and length of each time in which a device does nothing."""
    free = 0.0
    for start, stop in [*sorted((one.start, one.end) for one in measured if one.device == device), (end, end)]:
        if start > free:
            yield free, start - free
        free = max(free, stop)


def _axis(milliseconds: float, width: float) -> Iterator[float]:
    """Yields the round times of an axis."""
    if milliseconds > 0 and width > 0:
        step = round_step(milliseconds * BETWEEN / width)
        yield from (number * step for number in range(math.floor(milliseconds / step * (1 + 1e-9)) + 1))
