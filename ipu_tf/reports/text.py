"""Reports as text and as HTML of a notebook, by rich: the peak by category and its values, then the operations."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ipu_tf.pipeline.tables import bytes_text, share_text
from ipu_tf.reports.part import Operation, Part

_MOST_VALUES = 8
_MOST_OPERATIONS = 10
_MODELLED = "modelled from the program, bytes of one replica; XLA may need less, and none of it is a figure of an IPU"


def report_text(heading: str, parts: Sequence[Part]) -> str:
    """Returns a report's parts as text under a heading, as wide as the terminal."""
    return _console(heading, parts, None).file.getvalue()  # type: ignore[attr-defined] # a StringIO


def report_html(heading: str, parts: Sequence[Part]) -> str:
    """Returns them as HTML for a notebook."""
    console = _console(heading, parts, 110)
    pre = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=pre)


def _console(heading: str, parts: Sequence[Part], width: int | None) -> Console:
    console = Console(file=io.StringIO(), width=width, record=True, highlight=False)
    console.print(Text(heading))
    console.print(Text(_MODELLED))
    for number, part in enumerate(parts):
        console.print()
        console.print(
            Text(f"Part {number}, {part.kind}: {len(part.operations)} operations, peak {bytes_text(part.peak)}")
        )
        if part.operations:
            console.print(_categories(part))
            console.print(_values(part))
            console.print(_loops(part))
    return console


def _categories(part: Part) -> Table:
    at_peak = part.operations[part.peak_index]
    table = _table(Text(f"At the peak, operation {part.peak_index}: {at_peak.name}"), "category", "bytes", "share")
    for category, size in at_peak.live.items():
        if size:
            table.add_row(category.value, bytes_text(size), share_text(size / at_peak.total))
    table.add_row("total", bytes_text(at_peak.total), share_text(1.0))
    return table


def _values(part: Part) -> Table:
    inside = part.operations[part.peak_index].inside
    table = _table(Text("The largest values there"), "value", "bytes", "category")
    if inside:
        table.add_row("in the loop or branch", bytes_text(inside), "temporaries")
    for value in part.alive_at(part.peak_index)[:_MOST_VALUES]:
        table.add_row(Text(value.name), bytes_text(value.bytes), value.category.value)
    return table


def _loops(part: Part) -> Tree:
    """The operations that have a body, and the largest others, in the order in which they run."""
    tree = Tree(Text(f"Loops, branches, and the {_MOST_OPERATIONS} operations with the most bytes alive"))
    largest = sorted(part.operations, key=lambda each: -each.total)[:_MOST_OPERATIONS]
    chosen = {id(each) for each in largest} | {id(each) for each in part.operations if each.body}
    _add(tree, [each for each in part.operations if id(each) in chosen])
    return tree


def _add(tree: Tree, operations: list[Operation]) -> None:
    for each in operations:
        trips = f", {each.trips} times" if each.trips is not None else ""
        branch = tree.add(Text(f"{each.name}{trips}: {bytes_text(each.total)}"))
        _add(branch, [inner for inner in each.body if inner.body])


def _table(title: Text, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in ("bytes", "share") else "left", overflow="fold")
    return table
