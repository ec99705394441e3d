"""Boxes of tasks in a timetable's SVG picture, with the colour of each kind."""

from __future__ import annotations

from ipu_tf.device.schedule.timetable import Task, TaskKind
from ipu_tf.pipeline.svg_layout import LANE, text_width

KINDS = {
    TaskKind.FORWARD: ("#56b4e9", "forward"),
    TaskKind.RECOMPUTE: ("#f0e442", "recompute"),
    TaskKind.BACKWARD: ("#e69f00", "backward"),
    TaskKind.UPDATE: ("#cc79a7", "weight update"),
}
"""Fill and name of each kind of task; the colours stay apart for the colour-blind, in light and dark."""


def box(task: Task, when: str, x: float, y: float, width: float) -> str:
    """Returns a task's box, with its micro-batch on it.

    Args:
        task: the task.
        when: the end of its tooltip, such as "tick 3".
        x: its left edge, in pixels.
        y: its upper edge.
        width: how wide it is.
    """
    colour, name = KINDS[task.kind]
    number = "" if task.micro_batch is None else f", micro-batch {task.micro_batch}"
    label = "U" if task.micro_batch is None else str(task.micro_batch)
    # A label is never wider than its box; the tooltip has what is too small to read.
    size = min(11.0, 11.0 * width / text_width(label))
    return (
        f"<g><title>{name}, stage {task.stage}{number}, {when}</title>"
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{LANE - 4:g}" fill="{colour}" stroke="#000" '
        f'stroke-opacity="0.25"/>'
        f'<text x="{x + width / 2:g}" y="{y + 15:g}" text-anchor="middle" font-size="{size:.3g}">{label}</text></g>'
    )


def idle_box(x: float, y: float, width: float) -> str:
    """Returns the shade of a stretch of a lane in which its device does nothing; arguments as for `box`."""
    return f'<rect class="ipu-idle" x="{x:g}" y="{y:g}" width="{width:g}" height="{LANE - 4:g}"/>'


def time_mark(x: float, y: float, text: str) -> str:
    """Returns a mark of a time axis with its number below; `y` is where the lanes end."""
    line = f'<line class="ipu-edge" x1="{x:g}" y1="{y:g}" x2="{x:g}" y2="{y + 5:g}"/>'
    return f'{line}\n<text class="ipu-dim" x="{x:g}" y="{y + 16:g}" text-anchor="middle">{text}</text>'
