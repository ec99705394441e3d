"""What `pva` says of memory: which values are always alive, and which IPU each is on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from ipu_tf.reports.part import Category, Part, Value
from ipu_tf.reports.ticks import stage_values


class Homes:
    """The IPUs of a replica: a value is on that of its stage, and on the first one if no stage has it.

    Args:
        parts: of a report.

    Attributes:
        count: how many IPUs a replica has.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        stages = [(stage, part.stages) for part in parts for stage in part.stages]
        self.count = max((stage.ipu + 1 for stage, _ in stages), default=1)
        self._ipus = {value.name: stage.ipu for stage, others in stages for value in stage_values(stage, others)}

    def on(self, ipu: int, values: Iterable[Value]) -> list[Value]:
        """Returns those of some values that are on an IPU."""
        return [value for value in values if self._ipus.get(value.name, 0) == ipu]

    def peak(self, ipu: int, parts: Iterable[Part]) -> int:
        """Returns the most bytes of an IPU at one operation; of a pipeline at one tick, of parts of `over_ticks`."""
        return max((max(self._alive(ipu, part), default=0) for part in parts), default=0)

    def _alive(self, ipu: int, part: Part) -> Sequence[int]:
        changes = [0] * (len(part.operations) + 1)
        for value in self.on(ipu, part.values):
            changes[value.first] += value.bytes
            changes[value.last + 1] -= value.bytes
        alive = itertools.accumulate(changes[:-1])
        return [size + (each.inside if ipu == 0 else 0) for size, each in zip(alive, part.operations, strict=True)]


def always_live(parts: tuple[Part, ...]) -> list[Value]:
    """Returns the values that are alive at every operation of every part: of a variable its old or its new value."""
    if not parts:
        return []
    first, *others = map(_throughout, parts)
    return [value for key, value in first.items() if all(each.get(key) == value for each in others)]


def _throughout(part: Part) -> dict[tuple[str, Category], Value]:
    """Returns what is alive at every operation, under one name and of one size."""
    named: dict[tuple[str, Category], list[Value]] = {}
    for value in part.values:
        named.setdefault((value.name, value.category), []).append(value)
    last = len(part.operations) - 1
    return {
        key: dataclasses.replace(values[0], first=0, last=0)
        for key, values in named.items()
        if len({value.bytes for value in values}) == 1 and _covers(values, last)
    }


def _covers(values: list[Value], last: int) -> bool:
    """Returns whether at least one value is alive at each operation up to the last."""
    reached = -1
    for value in sorted(values, key=lambda each: each.first):
        if value.first > reached + 1:
            return False
        reached = max(reached, value.last)
    return reached >= last
