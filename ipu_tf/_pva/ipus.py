"""`Homes`: which IPU each value of a report is on. `pva` has a tile for each IPU."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ipu_tf.reports.part import Part, Value
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
