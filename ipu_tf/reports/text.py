"""Reports as text and as HTML of a notebook, by rich: the peak by category and its values, then the operations."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ipu_tf.pipeline.tables import bytes_text, count_text, share_text
from ipu_tf.reports.layers import layer_costs
from ipu_tf.reports.measured import Measured
from ipu_tf.reports.part import Operation, Part

_MOST_VALUES = 8
_MOST_OPERATIONS = 10
_MOST_LAYERS = 12
_STAGES = (("JAX's trace", "trace"), ("lowering", "lower"), ("XLA", "compile"))
_NUMBERS = ("bytes", "all the time", "most in stashes", "share", "FLOPs forward", "backward", "bytes accessed")
_MODELLED = "modelled from the program, bytes of one replica; XLA may need less, and none of it is a figure of an IPU"


def report_text(heading: str, parts: Sequence[Part], times: Measured | None) -> str:
    """Returns a report's parts and times as text under a heading, as wide as the terminal."""
    return _console(heading, parts, times, None).file.getvalue()  # type: ignore[attr-defined] # a StringIO


def report_html(heading: str, parts: Sequence[Part], times: Measured | None) -> str:
    """Returns them as HTML for a notebook."""
    console = _console(heading, parts, times, 110)
    pre = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=pre)


def _console(heading: str, parts: Sequence[Part], times: Measured | None, width: int | None) -> Console:
    console = Console(file=io.StringIO(), width=width, record=True, highlight=False)
    console.print(Text(heading))
    console.print(Text(_MODELLED))
    for line in () if times is None else times_text(times):
        console.print(Text(line))
    for number, part in enumerate(parts):
        console.print()
        console.print(
            Text(f"Part {number}, {part.kind}: {len(part.operations)} operations, peak {bytes_text(part.peak)}")
        )
        if part.operations:
            console.print(_categories(part))
            console.print(_values(part))
            console.print(_layers(part))
            if part.stages:
                console.print(_stages(part))
            console.print(_loops(part))
    return console


def times_text(times: Measured) -> Iterator[str]:
    """Yields lines that say how long the program took to compile and to run, and where that was measured."""
    yield f"measured on this machine, {times.machine}:"
    front_end = [f"front end {times.front_end_seconds:.2f} s"] if times.front_end_seconds else []
    stages = [f"{what} {times.seconds_of(stage):.2f} s" for what, stage in _STAGES]
    if times.failed:
        done = [text for text, (_, stage) in zip(stages, _STAGES, strict=True) if times.seconds_of(stage)]
        yield f"  failed while it was compiled: {times.failed}"
        yield f"  it came as far as: {', '.join([*front_end, *done]) or 'nothing'}"
        return
    source = "from the executable cache" if times.loaded else "not from the executable cache"
    yield f"  compiled: {', '.join([*front_end, *stages])}; {source}"
    count = "once" if times.executions == 1 else f"{times.executions} times"
    yield f"  executed: {count} in {times.seconds:.2f} s, compilation included"
    if times.last_executions:
        fastest = min(times.last_executions, key=lambda span: span.seconds)
        steps = f", {fastest.steps} steps" if fastest.steps else ""
        yield f"  the fastest execution: {1e3 * fastest.seconds:.1f} ms{steps}"


def _categories(part: Part) -> Group:
    at_peak = part.operations[part.peak_index]
    table = _table("category", "bytes", "share")
    for category, size in at_peak.live.items():
        if size:
            table.add_row(category.value, bytes_text(size), share_text(size / at_peak.total))
    table.add_row("total", bytes_text(at_peak.total), share_text(1.0))
    return Group(Text(f"At the peak, operation {part.peak_index}: {at_peak.name}"), table)


def _values(part: Part) -> Group:
    inside = part.operations[part.peak_index].inside
    table = _table("value", "bytes", "category")
    if inside:
        table.add_row("in the loop or branch", bytes_text(inside), "temporaries")
    for value in part.alive_at(part.peak_index)[:_MOST_VALUES]:
        table.add_row(Text(value.name), bytes_text(value.bytes), value.category.value)
    return Group(Text("The largest values there"), table)


def _layers(part: Part) -> Group:
    """The layers with the most FLOPs, in the order in which they run."""
    costs = layer_costs(part)
    largest = sorted(costs, key=lambda each: -each.flops)[:_MOST_LAYERS]
    table = _table("layer", "FLOPs forward", "backward", "bytes accessed")
    for each in costs:
        if each in largest:
            flops = count_text(each.forward_flops), count_text(each.backward_flops)
            table.add_row(Text(each.name), *flops, bytes_text(each.bytes_accessed))
    forward, backward = sum(each.forward_flops for each in costs), sum(each.backward_flops for each in costs)
    total = bytes_text(sum(each.bytes_accessed for each in costs))
    table.add_row("all layers", count_text(forward), count_text(backward), total)
    return Group(Text("The layers with the most FLOPs"), table)


def _stages(part: Part) -> Group:
    """The memory of a pipeline's stages by its timetable."""
    table = _table("stage of IPU", "bytes", "all the time", "most in stashes")
    for each in part.stages:
        sizes = map(bytes_text, (each.peak, each.resident, max(each.stashes)))
        table.add_row(f"{each.stage} of {each.ipu}", *sizes)
    return Group(Text(f"As a pipeline: at most {bytes_text(part.pipeline_peak)} in all stages at one tick"), table)


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
        for number, inside in enumerate(each.branches):
            arm = branch.add(Text(f"branch {number}: {len(inside)} operations"))
            _add(arm, [inner for inner in inside if inner.body])
        if not each.branches:
            _add(branch, [inner for inner in each.body if inner.body])


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    return table
