"""Texts of the tools, in the forms that Graphcore's have: the device listing, attributes, boxed tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from ipu_tf._config.attachments import Attachment, attachments
from ipu_tf.device.environment import ipu_count
from ipu_tf.tools.attributes import NOT_KNOWN, PARTITION, TARGET, host, ids

_WIDEST = 48
"""Letters of a command that are shown."""


def device_listing() -> str:
    """Returns what `gc-info -l` prints: each id that `select_ipus` takes, with its IPUs."""
    return "\n".join(["Graphcore device listing:", f"Partition: {PARTITION} [active]", *_ids()])


def _ids() -> Iterator[str]:
    for index, ipus in ids().items():
        if len(ipus) == 1:
            yield f"-+- Id: [{index}], target: [{TARGET}], IPU-M host: [{host()}], IPU#: [{ipus[0]}]"
        else:
            yield f"-+- Id: [{index}], target: [Multi IPU]"
            for place, ipu in enumerate(ipus):
                yield f" |--- Id: [{ipu}], DNC Id: [{place}], IPU-M host: [{host()}], IPU#: [{ipu}]"


def device_info(attributes: Mapping[str, str]) -> str:
    """Returns what `gc-info -d ID -i` prints of one IPU."""
    return "\n".join(["Device Info:", *(f"  {name}: {value}" for name, value in attributes.items())])


def monitor_tables(cards: bool) -> Iterator[str]:
    """Yields the tables of `gc-monitor`.

    Args:
        cards: whether the first one, of the IPUs, is shown.
    """
    processes = attachments()
    if cards:
        title = f"gc-monitor: partition {PARTITION} [active] has {ipu_count()} emulated IPUs on {host()}"
        rows = [(str(ipu), TARGET, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN) for ipu in range(ipu_count())]
        yield boxed(title, ("ID", "Type", "Clock", "Temp", "Power"), rows)
    if not processes:
        yield boxed(f"No attached processes in partition {PARTITION}", (), ())
        return
    columns = ("PID", "Command", "Time", "User", "ID", "Clock", "Temp", "Power")
    yield boxed(f"Attached processes in partition {PARTITION}", columns, [row for p in processes for row in _rows(p)])


def _rows(process: Attachment) -> Iterator[tuple[str, ...]]:
    seconds = int(max(time.time() - process.since, 0))
    spent = f"{seconds // 60}m{seconds % 60}s"
    command = process.command[:_WIDEST]
    for ipu in process.ipus:
        yield str(process.pid), command, spent, process.user, str(ipu), NOT_KNOWN, NOT_KNOWN, NOT_KNOWN


def boxed(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in a box, with a title above its columns."""
    widths = [max(map(len, column)) + 2 for column in zip(columns, *rows, strict=True)]
    inside = max(sum(widths) + max(len(widths) - 1, 0), len(title) + 2)
    if widths:
        widths[-1] += inside - sum(widths) - len(widths) + 1
    rule = "+" + "+".join("-" * width for width in widths) + "+"
    lines = ["+" + "-" * inside + "+", f"|{title:^{inside}}|"]
    if not widths:
        return "\n".join([*lines, lines[0]])
    body = [_line(row, widths) for row in rows]
    return "\n".join([*lines, rule, _line(columns, widths), rule, *body, rule])


def _line(entries: Sequence[str], widths: Sequence[int]) -> str:
    return "|" + "|".join(f"{entry:^{width}}" for entry, width in zip(entries, widths, strict=True)) + "|"
