"""Draws a timetable as an SVG picture, without a plotting library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ipu_tf.device.run.pipeline_timer import Measured
from ipu_tf.device.schedule.timetable import TaskKind, Timetable
from ipu_tf.pipeline.costs import StageTimes
from ipu_tf.pipeline.svg_boxes import KINDS, box, idle_box, time_mark
from ipu_tf.pipeline.svg_layout import ABOVE, LANE, Layout, layout_of, text_width
from ipu_tf.pipeline.svg_measured import measured_lanes
from ipu_tf.pipeline.text import lane_labels, lanes, title
from ipu_tf.pipeline.timing import Planned, bubble

#: Text on boxes stays black; everything else follows the reader's colour scheme. Names begin with `ipu-`, since a
#: picture in a notebook shares its page's styles.
_STYLE = """\
<style>
.ipu-paper{fill:#fff}.ipu-text{fill:#222}.ipu-dim{fill:#555}.ipu-idle{fill:#e4e4e4}.ipu-line{stroke:#bbb}.ipu-edge{stroke:#555}
@media (prefers-color-scheme:dark){
.ipu-paper{fill:#0d1117}.ipu-text{fill:#e6edf3}.ipu-dim{fill:#9da7b1}.ipu-idle{fill:#2b313a}.ipu-line{stroke:#444c56}
.ipu-edge{stroke:#9da7b1}}
</style>"""
_HEADING, _LEGEND, _MARGIN = 30.0, 34.0, 16.0


def timetable_svg(
    timetable: Timetable,
    times: Sequence[StageTimes] | None = None,
    heading: str | None = None,
    width: float | None = 1000.0,
    measured: Sequence[Measured] = (),
) -> str:
    """A timetable as an SVG document: time to the right, a lane for each stage on each of its devices.

    The box of a task is as wide as it takes time and bears the number of its micro-batch. Thick lines separate ramp-up,
    steady part, ramp-down and update. Shaded is idle. A long timetable continues in further bands below. Colours follow
    the reader's light or dark scheme.

    Args:
        timetable: the timetable.
        times: how long the passes of each stage take; by default 1 forward, 2 backward, 1 recomputed.
        heading: the picture's title; by default schedule, stages, devices and micro-batches.
        width: pixels that the picture may be wide, if a tick fits; None for a single band, however wide.
        measured: tasks with measured times, such as `pipeline_counts().measured`, shown in a band below.

    Returns:
        The text of the file.

    Raises:
        ValueError: another number of times than stages, or measured tasks that are not of the timetable.
    """
    layout = layout_of(timetable, times, width)
    heading = title(timetable) if heading is None else heading
    legend = _legend_entries(timetable, bubble(timetable, times).time_share, "planned time" if measured else "time")
    bands = len(layout.bands)
    below = measured_lanes(timetable, measured, layout.left, _top(layout, bands), layout.width) if measured else ()
    wide = _room(layout, heading, legend) + _MARGIN
    height = _HEADING + (bands + bool(measured)) * layout.band_height + _LEGEND
    size = f'width="{wide:g}" height="{height:g}" viewBox="0 0 {wide:g} {height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        f"<title>{escape(heading)}</title>",
        _STYLE,
        '<rect class="ipu-paper" width="100%" height="100%"/>',
        f'<text class="ipu-text" x="8" y="19" font-size="13">{escape(heading)}</text>',
        *(line for number, band in enumerate(layout.bands) for line in _band(layout, band, _top(layout, number))),
        *_boxes(layout),
        *below,
        *_legend(legend, layout.left, height - _LEGEND + 10),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _room(layout: Layout, heading: str, legend: Sequence[tuple[str, str]]) -> float:
    """How wide the picture is: heading, labels and legend need their room, however short the timetable is."""
    return max(
        layout.left + max(layout.width, *(_labels_end(layout, band) for band in layout.bands)),
        8 + text_width(heading, 13),
        layout.left + sum(_legend_width(name) for _, name in legend),
    )


def _top(layout: Layout, band: int) -> float:
    """The upper edge of a band's lanes."""
    return _HEADING + band * layout.band_height + ABOVE


def _band(layout: Layout, band: range, top: float) -> Iterator[str]:
    """The lanes' names, idle time, lines at the ends of ticks, the phases' names and the time axis of a band."""
    labels = lane_labels(layout.timetable)
    bottom = top + len(labels) * LANE
    for lane, label in enumerate(labels):
        yield f'<text class="ipu-text" x="8" y="{top + (lane + 0.65) * LANE:g}">{label}</text>'
    yield from _idle(layout, band, top)
    starts = {ticks.start for _, ticks in layout.timetable.phases.named()}
    for tick in (*band, band.stop):
        x = layout.left + layout.edges[tick] - layout.edges[band.start]
        kind = 'class="ipu-edge" stroke-width="1.5"' if tick in starts else 'class="ipu-line" stroke-width="0.5"'
        yield f'<line x1="{x:g}" y1="{top - 4:g}" x2="{x:g}" y2="{bottom + 4:g}" {kind}/>'
    for name in layout.phase_labels(band):
        yield f'<text class="ipu-dim" x="{layout.left + name.x:g}" y="{top - 8:g}">{name.text}</text>'
    yield f'<text class="ipu-dim" x="8" y="{bottom + 16:g}">time</text>'
    for number in layout.time_labels(band):
        yield time_mark(layout.left + number.x, bottom, number.text)


def _idle(layout: Layout, band: range, top: float) -> Iterator[str]:
    """Shades the time in which the device of a lane does nothing."""
    rows = list(lanes(layout.timetable))
    for tick in band:
        lasts = {device: 0.0 for device, _ in rows}
        for one in layout.planned[tick]:
            lasts[one.device] = max(lasts[one.device], one.end)
        end = layout.edges[tick + 1] - layout.edges[band.start]
        for lane, (device, _) in enumerate(rows):
            if tick in layout.timetable.phases.update and layout.timetable.cells[tick][device]:
                continue
            start = layout.x(band, tick, max(lasts[device], layout.times[tick]))
            if end - start > 0.01:
                yield idle_box(layout.left + start, top + lane * LANE + 2, end - start)


def _boxes(layout: Layout) -> Iterator[str]:
    """A box for each task, in the lane of its stage and device; the weight update fills its whole tick."""
    numbers = {lane: number for number, lane in enumerate(lanes(layout.timetable))}
    for number, band in enumerate(layout.bands):
        for tick in band:
            for one in layout.planned[tick]:
                y = _top(layout, number) + numbers[one.device, one.task.stage] * LANE + 2
                start, end = _ends(layout, band, one)
                yield box(one.task, f"tick {tick}", layout.left + start, y, end - start)


def _ends(layout: Layout, band: range, one: Planned) -> tuple[float, float]:
    if one.task.kind is TaskKind.UPDATE:
        start, end = (layout.edges[tick] - layout.edges[band.start] for tick in (one.tick, one.tick + 1))
        return start, end
    return layout.x(band, one.tick, one.start), layout.x(band, one.tick, one.end)


def _legend_entries(timetable: Timetable, idle: float, of: str) -> list[tuple[str, str]]:
    """(fill or style, name) for each kind of task that the timetable has, and for idle time."""
    kinds = {task.kind for task in timetable.order()}
    entries = [(f'fill="{colour}"', name) for kind, (colour, name) in KINDS.items() if kind in kinds]
    return [*entries, ('class="ipu-idle"', f"idle ({idle:.0%} of the {of})")]


def _legend_width(name: str) -> float:
    return 16 + text_width(name) + 14


def _legend(entries: Sequence[tuple[str, str]], left: float, y: float) -> Iterator[str]:
    """Legend of the colours."""
    x = left
    for look, name in entries:
        yield f'<rect {look} x="{x:g}" y="{y:g}" width="12" height="12"/>'
        yield f'<text class="ipu-text" x="{x + 16:g}" y="{y + 10:g}">{name}</text>'
        x += _legend_width(name)


def _labels_end(layout: Layout, band: range) -> float:
    """Where the last label of a band ends, from the left of its lanes."""
    ends = [label.x + text_width(label.text) for label in layout.phase_labels(band)]
    return max([*ends, *(label.x + text_width(label.text) / 2 for label in layout.time_labels(band))])
