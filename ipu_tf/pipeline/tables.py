"""Formats text tables, and numbers of bytes and counts."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Rows under a header, in columns two spaces apart.

    Args:
        header: the names of the columns.
        rows: the rows, with as many entries as the header.
        left: how many columns from the left are aligned left; numbers follow, aligned right.

    Example:
        >>> print(table(["stage", "bytes"], [["0", "12"], ["1", "4"]]))
        stage  bytes
        0         12
        1          4
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        entries = [
            entry.ljust(width) if column < left else entry.rjust(width)
            for column, (entry, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(entries).rstrip())
    return "\n".join(lines)


def bytes_text(count: float) -> str:
    """A number of bytes with a unit.

    Example:
        >>> bytes_text(640), bytes_text(1536), bytes_text(3 << 30)
        ('640 B', '1.5 KiB', '3.0 GiB')
    """
    return f"{count:.0f} B" if count < 1024 else _in_units(count, 1024, ("KiB", "MiB", "GiB", "TiB"))


def count_text(count: float) -> str:
    """A number in thousands, millions and so on.

    Example:
        >>> count_text(950), count_text(23_500_000)
        ('950', '23.5 M')
    """
    return f"{count:.0f}" if count < 1000 else _in_units(count, 1000, ("k", "M", "G", "T"))


def share_text(share: float) -> str:
    """A share from 0 to 1 in percent.

    Example:
        >>> share_text(0.4286)
        '42.9%'
    """
    return f"{100 * share:.1f}%"


def _in_units(count: float, step: int, units: Sequence[str]) -> str:
    """A number in the first of some units in which it is below `step`, else in the last. Units are `step` apart."""
    for unit in units[:-1]:
        count /= step
        if count < step:
            return f"{count:.1f} {unit}"
    return f"{count / step:.1f} {units[-1]}"
