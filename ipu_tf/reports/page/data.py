"""`part_data`: what the page's script lists of a part, compact: names by their scopes, each once."""

from __future__ import annotations

from typing import Any

from ipu_tf.reports.part import Category, Operation, Part
from ipu_tf.reports.ticks import OVER_TICKS

_CATEGORIES = tuple(Category)


class _Names:
    """Table of names: each scope once, after the one that it is in."""

    def __init__(self) -> None:
        self.table: list[tuple[int, str]] = []
        self._places: dict[tuple[int, str], int] = {}

    def place(self, name: str) -> int:
        """Returns the place of a name in the table."""
        place = -1
        for scope in name.split("/"):
            place = self._place((place, scope))
        return place

    def _place(self, entry: tuple[int, str]) -> int:
        if entry not in self._places:
            self._places[entry] = len(self.table)
            self.table.append(entry)
        return self._places[entry]


def _times(operation: Operation) -> int | None:
    """Returns how often an operation runs: a loop's body so many times, None where its condition says."""
    is_loop = operation.body and not operation.branches
    return operation.trips if is_loop else 1


def part_data(part: Part) -> dict[str, Any]:
    """Returns the values and operations of a part as the page's script reads them."""
    names = _Names()
    values = [
        [names.place(each.name), _CATEGORIES.index(each.category), each.bytes, each.first, each.last]
        for each in part.values
    ]
    operations = [
        [names.place(each.name), each.total, each.inside, each.flops, each.bytes_accessed, _times(each)]
        for each in part.operations
    ]
    return {
        "names": names.table,
        "categories": [category.value for category in _CATEGORIES],
        "values": values,
        "operations": operations,
        "peak": part.peak_index,
        "of": "tick" if part.kind == OVER_TICKS else "operation",
    }
