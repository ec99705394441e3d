"""Tables and the program tree of a report's page, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from ipu_tf.pipeline.tables import bytes_text, count_text, share_text
from ipu_tf.reports.comparison import compared
from ipu_tf.reports.layers import LayerCost, layer_costs
from ipu_tf.reports.part import Operation, Part, StageMemory
from ipu_tf.reports.report import PlannedConvolution, Report
from ipu_tf.reports.text import times_text

_MOST_LISTED = 400
"""Operations that the tree lists of one part or loop, the largest ones and all with a body; the table has all."""


def table(columns: Sequence[str], lines: Iterable[Sequence[str]], sortable: bool = False) -> str:
    """Returns an HTML table; entries that are numbers, or have a unit, are aligned by the style sheet.

    Args:
        columns: their names.
        lines: the entries, which are escaped here.
        sortable: whether a click on a column's name sorts by it.
    """
    head = "".join(
        f"<th><button>{escape(each)}</button></th>" if sortable else f"<th>{escape(each)}</th>" for each in columns
    )
    body = "".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in line) + "</tr>" for line in lines)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def summary_table(report: Report) -> str:
    """Returns the peak of each part by category, and the measured times."""
    lines = []
    for number, part in enumerate(report.parts):
        at_peak = part.operations[part.peak_index].live if part.operations else {}
        inside = [(category.value, size) for category, size in at_peak.items() if size]
        lines.append((f"{number}, {part.kind}", "total", bytes_text(part.peak), share_text(1.0)))
        lines += [("", name, bytes_text(size), share_text(size / part.peak)) for name, size in inside]
    replicas = f"<p>{report.replicas} replicas; every figure is that of one.</p>" if report.replicas > 1 else ""
    times = "".join(f"<li>{escape(line)}</li>" for line in times_text(report.measured)) if report.measured else ""
    return f"{replicas}<ul>{times}</ul>" + table(("part", "at its peak", "bytes", "share"), lines)


def stage_table(stages: Sequence[StageMemory]) -> str:
    """Returns the memory of each stage of a pipeline, and the most that all need at one tick."""
    columns = ("stage", "IPU", "all the time", "most in stashes", "peak", "at tick")
    lines = (
        (
            str(each.stage),
            str(each.ipu),
            bytes_text(each.resident),
            bytes_text(max(each.stashes)),
            bytes_text(each.peak),
            str(each.peak_tick),
        )
        for each in stages
    )
    about = "Modelled from the timetable of one weight update, not from the loop that ran: bytes of one replica."
    return f"<p>{about}</p>{table(columns, lines)}"


def change_table(before: Report, after: Report) -> str:
    """Returns what differs between two reports: bytes at the peak, FLOPs of layers; the most grown of each first."""
    changes = compared(before, after)
    columns = ("what", "name", "before", "after", "growth")
    more = f"<p>Listed are {_MOST_LISTED} of {len(changes)}.</p>" if len(changes) > _MOST_LISTED else ""
    return more + table(columns, (each.texts() for each in changes[:_MOST_LISTED]), sortable=True)


def layer_table(part: Part) -> str:
    """Returns the costs of a part's layers, and of all."""
    costs = layer_costs(part)
    whole = LayerCost(
        "all",
        sum(each.operations for each in costs),
        sum(each.forward_flops for each in costs),
        sum(each.backward_flops for each in costs),
        sum(each.bytes_accessed for each in costs),
    )
    columns = ("layer", "operations", "FLOPs forward", "FLOPs backward", "bytes accessed")
    return table(columns, map(_layer, (*costs, whole)))


def _layer(cost: LayerCost) -> tuple[str, ...]:
    flops = count_text(cost.forward_flops), count_text(cost.backward_flops)
    return cost.name, str(cost.operations), *flops, bytes_text(cost.bytes_accessed)


def program_tree(parts: Sequence[Part]) -> str:
    """Returns the parts with their loops and branches, as a tree that unfolds."""
    return "".join(
        f"<details open><summary>Part {number}: {escape(part.kind)}, {len(part.operations)} operations, peak "
        f"{bytes_text(part.peak)}</summary>{''.join(_tree(part.operations))}</details>"
        for number, part in enumerate(parts)
    )


def _tree(operations: Sequence[Operation]) -> Iterator[str]:
    largest = sorted(operations, key=lambda each: -each.total)[:_MOST_LISTED]
    chosen = {id(each) for each in largest}
    for each in operations:
        about = f"<code>{escape(each.name)}</code> {bytes_text(each.total)} alive, {count_text(each.flops)} FLOPs"
        if each.branches:
            arms = "".join(_branch(number, branch) for number, branch in enumerate(each.branches))
            yield f"<details><summary>branches: {about}</summary>{arms}</details>"
        elif each.body:
            trips = f"{each.trips} times" if each.trips is not None else "until its condition fails"
            yield f"<details><summary>loop, {trips}: {about}</summary>{''.join(_tree(each.body))}</details>"
        elif id(each) in chosen:
            yield f"<div>{about}</div>"
    if len(operations) > len(chosen):
        yield f"<div>Listed are the {len(chosen)} operations with the most bytes alive of {len(operations)}.</div>"


def _branch(number: int, operations: Sequence[Operation]) -> str:
    inside = "".join(_tree(operations))
    return f"<details><summary>branch {number}, {len(operations)} operations</summary>{inside}</details>"


def convolution_table(convolutions: Sequence[PlannedConvolution]) -> str:
    """Returns the plans of the convolutions with their reasons."""
    if not convolutions:
        return ""
    plans = "".join(
        f"<details><summary>{escape(each.scope)}</summary><pre>{escape(each.explanation)}</pre></details>"
        for each in convolutions
    )
    return f"<h3>Plans of convolutions on this machine</h3>{plans}"
