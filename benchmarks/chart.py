"""Bar chart in SVG of this project's times relative to others; bars left of the line are faster."""

from __future__ import annotations

import math
from html import escape

from benchmarks.comparisons import Comparison
from benchmarks.report import Verdict
from benchmarks.workload import FAMILIES

LABELS, PLOT, ROW, TOP = 330, 420, 18, 46
LOWEST, HIGHEST = 0.05, 4.0
COLOURS = dict(zip(FAMILIES, ("#e08214", "#2c7fb8", "#636363"), strict=True))


def chart(found: list[tuple[Comparison, Verdict]], title: str) -> str:
    """Draws a bar for each verdict, on a logarithmic scale, and a mark at its goal.

    Args:
        found: comparisons and what came of them.
        title: stands above.
    """
    parts = [_text(8, 18, title, "bold"), _text(8, 36, "our time over the best time of each; a mark is the goal")]
    for part in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0):
        x = _x(part)
        width = 1.5 if part == 1 else 0.5
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{TOP + ROW * len(found)}" stroke="#999" stroke-width="{width}"/>'
        )
        parts.append(_text(x - 8, TOP + ROW * len(found) + 14, f"{part:g}"))
    for row, (comparison, verdict) in enumerate(found):
        parts += _bar(TOP + ROW * row, comparison, verdict)
    width, height = LABELS + PLOT + 60, TOP + ROW * len(found) + 26
    style = 'font-family="sans-serif" font-size="11"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {style}>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _bar(y: int, comparison: Comparison, verdict: Verdict) -> list[str]:
    one, here = _x(1.0), _x(verdict.part)
    colour = COLOURS.get(verdict.family, "#444")
    drawn = [
        _text(8, y + 13, f"{comparison.name} {verdict.model}: {verdict.family}"),
        f'<rect x="{min(one, here)}" y="{y + 3}" width="{abs(here - one)}" height="{ROW - 6}" fill="{colour}"/>',
        _text(max(one, here) + 4, y + 13, f"{verdict.part:.2f}"),
    ]
    if verdict.goal is not None:
        goal = _x(verdict.goal)
        drawn.append(f'<line x1="{goal}" x2="{goal}" y1="{y + 1}" y2="{y + ROW - 1}" stroke="#c00" stroke-width="2"/>')
    return drawn


def _x(part: float) -> float:
    place = math.log(min(max(part, LOWEST), HIGHEST) / LOWEST) / math.log(HIGHEST / LOWEST)
    return round(LABELS + PLOT * place, 1)


def _text(x: float, y: float, text: str, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" font-weight="{weight}">{escape(text)}</text>'
