"""Draws a timetable as an SVG picture, without a plotting library."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate

from ipu_tf.device.schedule.timetable import Task, TaskKind, Timetable
from ipu_tf.pipeline.costs import StageTimes
from ipu_tf.pipeline.text import lane_labels, lanes, title
from ipu_tf.pipeline.timing import Planned, plan, tick_lengths

#: Fill and name of each kind of task; the colours stay apart for the colour-blind.
_KINDS = {
    TaskKind.FORWARD: ("#56b4e9", "forward"),
    TaskKind.RECOMPUTE: ("#f0e442", "recompute"),
    TaskKind.BACKWARD: ("#e69f00", "backward"),
    TaskKind.UPDATE: ("#cc79a7", "weight update"),
}
#: Sizes in pixels: the mean box's width, a lane's height, and the room around the lanes.
_BOX, _LANE, _LEFT, _TOP, _BELOW = 36.0, 26.0, 100.0, 56.0, 44.0
#: The least width of the weight update's box, of a mean box: it is shown even if it takes no time.
_UPDATE_WIDTH = 0.6


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where things are.

    Attributes:
        timetable: the timetable.
        scale: pixels for each unit of time.
        edges: where ticks begin and end, in pixels from the left of the lanes.
    """

    timetable: Timetable
    scale: float
    edges: tuple[float, ...]

    @property
    def bottom(self) -> float:
        """Below the last lane."""
        return _TOP + len(list(lanes(self.timetable))) * _LANE


def timetable_svg(timetable: Timetable, times: Sequence[StageTimes] | None = None, heading: str | None = None) -> str:
    """A timetable as an SVG document: time to the right, a lane for each stage on each of its devices.

    The box of a task is as wide as it takes time and bears the number of its micro-batch. Thin lines are the ends of
    ticks, thick ones separate ramp-up, steady part, ramp-down and update. White is idle.

    Args:
        timetable: the timetable.
        times: how long the passes of each stage take; by default 1 forward, 2 backward, 1 recomputed.
        heading: the picture's title; by default schedule, stages, devices and micro-batches.

    Returns:
        The text of the file.

    Raises:
        ValueError: another number of times than stages.
    """
    layout = _layout(timetable, times)
    heading = title(timetable) if heading is None else heading
    # The heading and the legend need their room, however short the timetable is.
    width = max(_LEFT + layout.edges[-1] + 16, 16 + 7.0 * len(heading), 500)
    height = layout.bottom + _BELOW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" font-size="11">',
        f"<title>{escape(heading)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="18" font-size="13">{escape(heading)}</text>',
        *_grid(layout),
        *_boxes(layout, plan(timetable, times)),
        *_legend(layout),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _layout(timetable: Timetable, times: Sequence[StageTimes] | None) -> _Layout:
    lasting = [planned.end - planned.start for planned in plan(timetable, times) if planned.end > planned.start]
    scale = _BOX * len(lasting) / sum(lasting) if lasting else 0.0
    lengths = [scale * length for length in tick_lengths(timetable, times)]
    for tick in timetable.phases.update:
        lengths[tick] = max(lengths[tick], _UPDATE_WIDTH * _BOX)
    return _Layout(timetable, scale, tuple(accumulate(lengths, initial=0.0)))


def _grid(layout: _Layout) -> Iterator[str]:
    """The lanes' names, lines at the ends of ticks, and the phases' names."""
    starts = {ticks.start: name for name, ticks in layout.timetable.phases.named()}
    for lane, label in enumerate(lane_labels(layout.timetable)):
        yield f'<text x="8" y="{_TOP + (lane + 0.65) * _LANE:g}">{label}</text>'
    for tick, edge in enumerate(layout.edges):
        x = _LEFT + edge
        stroke = '"#666" stroke-width="1.5"' if tick in starts else '"#ccc" stroke-width="0.5"'
        yield f'<line x1="{x:g}" y1="{_TOP - 4:g}" x2="{x:g}" y2="{layout.bottom + 4:g}" stroke={stroke}/>'
        if tick in starts:
            yield f'<text x="{x + 2:g}" y="{_TOP - 8:g}" fill="#444">{starts[tick]}</text>'


def _boxes(layout: _Layout, planned: Sequence[Planned]) -> Iterator[str]:
    """A box for each task, in the lane of its stage and device; the weight update fills its whole tick."""
    numbers = {lane: number for number, lane in enumerate(lanes(layout.timetable))}
    for one in planned:
        lane = numbers[one.device, one.task.stage]
        if one.task.kind is TaskKind.UPDATE:
            start, end = layout.edges[one.tick : one.tick + 2]
        else:
            start, end = one.start * layout.scale, one.end * layout.scale
        yield _box(one.task, one.tick, _LEFT + start, _TOP + lane * _LANE + 2, end - start)


def _box(task: Task, tick: int, x: float, y: float, width: float) -> str:
    colour, name = _KINDS[task.kind]
    number = "" if task.micro_batch is None else f", micro-batch {task.micro_batch}"
    label = "U" if task.micro_batch is None else str(task.micro_batch)
    return (
        f"<g><title>{name}, stage {task.stage}{number}, tick {tick}</title>"
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{_LANE - 4:g}" fill="{colour}" stroke="white"/>'
        f'<text x="{x + width / 2:g}" y="{y + 15:g}" text-anchor="middle">{label}</text></g>'
    )


def _legend(layout: _Layout) -> Iterator[str]:
    """What each colour means, for the kinds of tasks that the timetable has."""
    y = layout.bottom + 18
    kinds = {task.kind for task in layout.timetable.order()}
    for number, (colour, name) in enumerate(shown for kind, shown in _KINDS.items() if kind in kinds):
        x = _LEFT + number * 98
        yield f'<rect x="{x:g}" y="{y:g}" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 16:g}" y="{y + 10:g}">{name}</text>'
