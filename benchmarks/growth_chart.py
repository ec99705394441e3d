"""Line chart in SVG of cost over each varied quantity, both scales logarithmic.

Costs are drawn as multiples of the first. A dashed line shows what linear growth would be; below it costs grow slower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

PANEL, GAP, TOP, LEFT = 150, 46, 50, 40
LINES = (("time per step", "#2c7fb8"), ("time until the first step", "#e08214"))
Rows = Sequence[tuple[float, float, float]]
"""A value, milliseconds per step, and seconds until the first step."""


def growth_chart(found: Mapping[str, Rows]) -> str:
    """Draws the panels side by side.

    Args:
        found: by the name of what is varied; values in rising order, at least two of them.

    Example:
        >>> drawn = growth_chart({"depth": [(2, 0.5, 1.0), (4, 1.0, 1.1)]})
        >>> drawn.count("<polyline"), "depth" in drawn
        (3, True)
    """
    parts = [_text(8 + 190 * place, 18, name, colour) for place, (name, colour) in enumerate(LINES)]
    parts.append(_text(8 + 190 * len(LINES), 18, "dashed: linear", "#999"))
    for place, (name, rows) in enumerate(found.items()):
        parts += _panel(LEFT + place * (PANEL + GAP), name, rows)
    width, height = LEFT + len(found) * (PANEL + GAP), TOP + PANEL + 40
    style = 'font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {style}>'
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _panel(x: float, name: str, rows: Rows) -> list[str]:
    values, *costs = zip(*rows, strict=True)
    most = values[-1] / values[0]
    lines = [[cost / max(of_kind[0], 1e-9) for cost in of_kind] for of_kind in costs]

    def points(multiples: Sequence[float]) -> str:
        pairs = zip(values, multiples, strict=True)
        places = [(_share(value / values[0], most), _share(multiple, most)) for value, multiple in pairs]
        return " ".join(f"{x + PANEL * across:.1f},{TOP + PANEL * (1 - up):.1f}" for across, up in places)

    linear = [value / values[0] for value in values]
    drawn = [f'<rect x="{x}" y="{TOP}" width="{PANEL}" height="{PANEL}" fill="none" stroke="#ccc"/>']
    drawn.append(f'<polyline points="{points(linear)}" fill="none" stroke="#999" stroke-dasharray="4 3"/>')
    for (_, colour), line in zip(LINES, lines, strict=True):
        drawn.append(f'<polyline points="{points(line)}" fill="none" stroke="{colour}" stroke-width="2"/>')
    drawn += [_text(x, TOP + PANEL + 14, f"{values[0]:g}"), _text(x + PANEL - 24, TOP + PANEL + 14, f"{values[-1]:g}")]
    drawn += [_text(x + PANEL / 2 - 30, TOP + PANEL + 30, name), _text(x - 30, TOP + 10, f"x{most:g}")]
    return [*drawn, _text(x - 20, TOP + PANEL, "x1")]


def _share(multiple: float, most: float) -> float:
    """Maps a multiple to its position on the logarithmic scale, clamped slightly beyond both ends."""
    return min(max(math.log(max(multiple, 1e-9)) / math.log(most), -0.1), 1.1)


def _text(x: float, y: float, text: str, colour: str = "#000") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}">{escape(text)}</text>'
