"""Pictures of a report's page as SVG: memory over time, tasks of a pipeline, executions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from html import escape

from ipu_tf.device.run.pipeline_timer import Measured as MeasuredTask
from ipu_tf.device.run.run_record import Span
from ipu_tf.pipeline.tables import bytes_text
from ipu_tf.reports.measured import Measured
from ipu_tf.reports.part import Category, Operation, Part

_WIDTH, _HEIGHT, _LEFT, _TOP, _BELOW = 960, 260, 84, 26, 34
_MOST_COLUMNS = 480
_LANE = 26
_KINDS = {"F": "forward", "R": "recompute", "B": "backward", "U": "weight update"}


def memory_svg(part: Part, number: int, of: str = "operation") -> str:
    """Returns the bytes of each category over a part's operations, or what they stand for, with the peak marked."""
    columns = _columns(part.operations)
    high = max(part.peak, 1)
    across = _WIDTH / max(len(columns), 1)
    return "".join(
        [
            f'<svg class="plot memory" data-part="{number}" data-left="{_LEFT}" data-width="{_WIDTH}" tabindex="0" ',
            f'role="img" viewBox="0 0 {_LEFT + _WIDTH + 16} {_TOP + _HEIGHT + _BELOW}" ',
            'aria-label="Bytes alive over operations">',
            *_scale(high),
            *_areas(columns, high, across),
            *_time_axis(len(part.operations), of),
            *_peak_mark(part, high),
            f'<line class="cursor" y1="{_TOP}" y2="{_TOP + _HEIGHT}" visibility="hidden"/></svg>',
            _legend(part),
        ]
    )


def _columns(operations: Sequence[Operation]) -> list[Operation]:
    """Returns the operations; of many, the one with the most bytes alive of each of a number of stretches."""
    stretches = min(len(operations), _MOST_COLUMNS)
    bounds = [len(operations) * place // stretches for place in range(stretches + 1)] if stretches else []
    return [max(operations[a:b], key=lambda each: each.total) for a, b in itertools.pairwise(bounds)]


def _areas(columns: Sequence[Operation], high: int, across: float) -> Iterator[str]:
    below = [0] * len(columns)
    for place, category in enumerate(Category):
        above = [low + each.live[category] for low, each in zip(below, columns, strict=True)]
        if above != below:
            up = list(_steps(above, high, across))
            points = " ".join([*up, *reversed(list(_steps(below, high, across)))])
            yield f'<polygon class="c{place}" points="{points}"><title>{category.value}</title></polygon>'
        below = above


def _steps(heights: Sequence[int], high: int, across: float) -> Iterator[str]:
    for place, height in enumerate(heights):
        y = _TOP + _HEIGHT * (1 - height / high)
        yield f"{_LEFT + place * across:.1f},{y:.1f}"
        yield f"{_LEFT + (place + 1) * across:.1f},{y:.1f}"


def _scale(high: int) -> Iterator[str]:
    """Yields lines at round sizes: from three to seven powers of two, or multiples of one."""
    step = 1 << max(math.floor(math.log2(max(high, 1) / 3)), 0)
    for size in range(0, high + 1, step):
        y = _TOP + _HEIGHT * (1 - size / high)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{bytes_text(size)}</text>'


def _time_axis(operations: int, of: str) -> Iterator[str]:
    for quarter in range(5):
        x = _LEFT + _WIDTH * quarter / 4
        anchor = "end" if quarter == 4 else "middle"
        yield f'<text x="{x}" y="{_TOP + _HEIGHT + 16}" text-anchor="{anchor}">{operations * quarter // 4}</text>'
    yield f'<text x="{_LEFT + _WIDTH / 2}" y="{_TOP + _HEIGHT + 31}" text-anchor="middle">{of}</text>'


def _peak_mark(part: Part, high: int) -> Iterator[str]:
    x = _LEFT + _WIDTH * (part.peak_index + 0.5) / len(part.operations)
    anchor = "start" if x < _LEFT + _WIDTH / 2 else "end"
    yield f'<line class="peak" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{_TOP + _HEIGHT}"/>'
    yield f'<text class="strong" x="{x:.1f}" y="{_TOP - 10}" text-anchor="{anchor}">peak {bytes_text(high)}</text>'


def _legend(part: Part) -> str:
    used = {category for each in part.operations for category, size in each.live.items() if size}
    return (
        '<p class="legend">'
        + "".join(
            f'<span><i class="c{place}"></i>{category.value}</span>'
            for place, category in enumerate(Category)
            if category in used
        )
        + "</p>"
    )


def task_svg(tasks: Sequence[MeasuredTask]) -> str:
    """Returns the measured tasks of a pipeline, a lane for each device; what is not filled is idle."""
    if not tasks:
        return (
            "<p>Nothing was measured: the pipeline ran as one loop, or times were not asked for. "
            "<code>ipu_tf.pipeline.run_on_devices(measure=True)</code> measures on several JAX devices.</p>"
        )
    end, devices = max(task.end for task in tasks), max(task.device for task in tasks) + 1
    boxes = [
        _box(each.device, each.start / end, each.end / end, f"k{each.task.kind.value}", _task_title(each))
        for each in tasks
    ]
    lanes = [_lane(device, f"IPU {device}") for device in range(devices)]
    kinds = [f'<span><i class="k{letter}"></i>{name}</span>' for letter, name in _KINDS.items()]
    return _lanes([*lanes, *boxes], devices, end) + f'<p class="legend">{"".join(kinds)}</p>'


def _task_title(each: MeasuredTask) -> str:
    return f"{each.task.label} stage {each.task.stage}: {1e3 * (each.end - each.start):.2f} ms"


def execution_svg(times: Measured | None) -> str:
    """Returns when the program was compiled and executed, a lane each."""
    spans = [] if times is None else [*times.compiled, *times.last_executions]
    if not spans:
        return "<p>Nothing was measured.</p>"
    first = min(span.start for span in spans)
    length = max(max(span.start + span.seconds for span in spans) - first, 1e-9)
    names = ("trace", "lower", "compile", "execution")
    lanes = [_lane(place, name) for place, name in enumerate(names)]
    boxes = [_span_box(names.index(span.what), span, first, length) for span in spans]
    return f'<div class="wide">{_lanes([*lanes, *boxes], len(names), length)}</div>'


def _span_box(lane: int, span: Span, first: float, length: float) -> str:
    steps = f", {span.steps} steps" if span.steps else ""
    about = f"{span.what}: {1e3 * span.seconds:.2f} ms{steps}"
    start = (span.start - first) / length
    return _box(lane, start, start + span.seconds / length, f"s{lane}", about)


def _lane(lane: int, name: str) -> str:
    y = _TOP + lane * _LANE
    idle = f'<rect class="idle" x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_LANE - 4}"/>'
    return f'{idle}<text x="{_LEFT - 6}" y="{y + 15}" text-anchor="end">{escape(name)}</text>'


def _box(lane: int, start: float, end: float, kind: str, about: str) -> str:
    x, wide = _LEFT + _WIDTH * start, max(_WIDTH * (end - start), 0.7)
    y = _TOP + lane * _LANE
    inside = f'x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{_LANE - 4}"'
    return f'<rect class="{kind}" {inside}><title>{escape(about)}</title></rect>'


def _lanes(inside: Sequence[str], lanes: int, seconds: float) -> str:
    y = _TOP + lanes * _LANE + 14
    ticks = [
        f'<text x="{_LEFT + _WIDTH * quarter / 4}" y="{y}" text-anchor="{"end" if quarter == 4 else "middle"}">'
        f"{1e3 * seconds * quarter / 4:.1f} ms</text>"
        for quarter in range(5)
    ]
    box = f"0 0 {_LEFT + _WIDTH + 16} {y + 8}"
    return f'<svg class="plot" role="img" viewBox="{box}" aria-label="Times by lane">{"".join([*inside, *ticks])}</svg>'
