"""`page_html`: a report as one self-contained HTML page."""

from __future__ import annotations

import importlib.resources
import json
import os
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from ipu_tf.device.cache.whole_file import write_whole
from ipu_tf.pipeline.svg import timetable_svg
from ipu_tf.pipeline.tables import bytes_text
from ipu_tf.reports.page.data import part_data
from ipu_tf.reports.page.pictures import execution_svg, memory_svg, task_svg
from ipu_tf.reports.page.tables import (
    change_table,
    convolution_table,
    layer_table,
    program_tree,
    stage_table,
    summary_table,
)
from ipu_tf.reports.part import Part
from ipu_tf.reports.report import Report
from ipu_tf.reports.ticks import OVER_TICKS, over_ticks

_EMULATED = (
    "Report of an emulated IPU (ipu_tf). Memory and FLOPs are modelled from the program; times were measured on the "
    "machine that wrote it. No figure here is one of IPU hardware, and Graphcore's PopVision cannot open its files."
)

_LETTERS = (
    "F is a forward pass, R its repetition, B a backward pass, with the micro-batch's number; U is the weight update."
)
_KINDS = {OVER_TICKS: "all stages, tick by tick", "loop": "one iteration of its loop"}
"""What is said of kinds of parts."""


def write_page(report: Report, path: str | os.PathLike[str], compare: Report | None = None) -> None:
    """Writes a report as an HTML page, which shows in any browser without network.

    Args:
        report: the report.
        path: where, such as `report.html`; a file there is replaced. Its folder must exist.
        compare: an older report: the page then says what grew since.

    Raises:
        OSError: if it cannot be written.
    """
    text = page_html(report, compare).encode()
    write_whole(path, lambda file: file.write(text))


def page_html(report: Report, compare: Report | None = None) -> str:
    """Returns the text of the page."""
    shown = list(_shown(report))
    data = json.dumps([part_data(part) for _, _, part in shown], separators=(",", ":")).replace("<", "\\u003c")
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{escape(report.program)} - ipu_tf report</title><style>{_file('page.css')}</style></head><body>",
            *_body(report, compare, shown),
            f'<script type="application/json" id="data">{data}</script><script>{_file("page.js")}</script>',
            "</body></html>\n",
        ]
    )


def _body(report: Report, compare: Report | None, shown: Sequence[tuple[str, str, Part]]) -> Iterator[str]:
    yield f"<header><h1>{escape(report.program)}</h1><p>{escape(_EMULATED)}</p>"
    names = [(f"part-{number}", name) for number, (name, _, _) in enumerate(shown)]
    grown = [] if compare is None else [("grown", "What grew")]
    links = [*names, ("summary", "Summary"), *grown, ("tree", "Program tree"), ("times", "Times")]
    yield "<nav>" + "".join(f'<a href="#{anchor}">{text}</a>' for anchor, text in links) + "</nav></header><main>"
    for number, (name, after, part) in enumerate(shown):
        yield _section(
            f"part-{number}", f"{name}: {_KINDS.get(part.kind, part.kind)}", "".join(_part(number, part, after))
        )
    yield _section("summary", "Summary", summary_table(report))
    if compare is not None:
        yield _section("grown", f"What grew since the older report on {compare.program}", change_table(compare, report))
    yield _section("tree", "Program tree", program_tree(report.parts) + convolution_table(report.convolutions))
    yield _section("times", "Execution trace, measured on this machine", execution_svg(report.measured)) + "</main>"


def _shown(report: Report) -> Iterator[tuple[str, str, Part]]:
    """Yields the parts with their names and what is said of their memory; before a pipeline its stages over ticks."""
    for number, part in enumerate(report.parts):
        if part.stages:
            yield f"Part {number} as a pipeline", stage_table(part.stages), over_ticks(part)
        yield f"Part {number}", "", part


def _part(number: int, part: Part, after: str) -> Iterator[str]:
    if not part.operations:
        yield "<p>It has no operations.</p>"
        return
    peak = part.operations[part.peak_index]
    of = "tick" if part.kind == OVER_TICKS else "operation"
    yield f"<h3>Memory over {len(part.operations)} {of}s</h3>{memory_svg(part, number, of)}"
    yield f"<p>The peak, {bytes_text(part.peak)} of one replica, is at {of} {part.peak_index}"
    yield "" if of == "tick" else f", <code>{escape(peak.name)}</code>"
    yield f". Click, or use the arrow keys, to list what is alive at another {of}."
    yield f" {_LETTERS}</p>{after}" if of == "tick" else "</p>"
    yield f'<div class="alive" id="alive-{number}" aria-live="polite"></div>'
    if part.pipeline is not None:
        yield "<h3>Pipeline: planned timetable</h3><p>Idle time is shaded. A forward pass has the length 1, "
        yield f'a backward pass 2.</p><div class="wide">{timetable_svg(part.pipeline)}</div>'
        yield "<h3>Pipeline: measured on this machine</h3>"
        yield f'<div class="wide">{task_svg(part.task_times)}</div>'
    if part.kind != OVER_TICKS:
        yield f"<h3>Layers</h3>{layer_table(part)}"
    yield f"<h3>Liveness by variable, over {of}s</h3>{_search('values', number, 'name, layer or category')}"
    yield f"<h3>{of.title()}s</h3>{_search('operations', number, 'name')}"


def _search(what: str, number: int, by: str) -> str:
    label = f'<label>Search by {by}: <input type="search" data-for="{what}-{number}"></label>'
    return f'{label} <span class="count"></span><div class="wide" id="{what}-{number}"></div>'


def _section(anchor: str, title: str, inside: str) -> str:
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>{inside}</section>'


def _file(name: str) -> Any:
    return importlib.resources.files("ipu_tf.reports.page").joinpath(name).read_text(encoding="utf-8")
