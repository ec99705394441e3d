"""`compared`: what grew and what shrank from one report to another, by category, layer and value."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ipu_tf.pipeline.tables import bytes_text, count_text
from ipu_tf.reports.layers import layer_costs
from ipu_tf.reports.part import Category
from ipu_tf.reports.report import Report

_NUMBER = re.compile(r"_\d+(?=[/_]|$)")


@dataclasses.dataclass(frozen=True)
class Change:
    """A figure of two reports.

    Attributes:
        what: "peak", "category at the peak", "value at the peak" or "layer".
        name: of the category, value or layer; "" for the peak.
        before: the older report's: bytes, or FLOPs of a layer; 0 where it has none of this name.
        after: the newer report's.
    """

    what: str
    name: str
    before: float
    after: float

    @property
    def growth(self) -> float:
        """By how much it grew; negative if it shrank."""
        return self.after - self.before

    def texts(self) -> tuple[str, str, str, str, str]:
        """Returns what it is, its name, both figures and the growth, as text."""
        text = count_text if self.what == "layer" else bytes_text
        sign = "+" if self.growth > 0 else "-" if self.growth < 0 else ""
        return self.what, self.name, text(self.before), text(self.after), f"{sign}{text(abs(self.growth))}"


def compared(before: Report, after: Report) -> tuple[Change, ...]:
    """Returns what differs between two reports: the peak first, then categories, values and layers, by growth.

    Categories and values are those at the peak; values of one name count together, and so do layers of all parts. Where
    two reports share few names, numbers such as those of `sequential_1` are left out of names.

    Args:
        before: the older report.
        after: the newer one.

    Example:
        >>> old = Report("step", 1, ())
        >>> [(each.what, each.growth) for each in compared(old, old)]
        [('peak', 0)]
    """
    changes = [Change("peak", "", before.peak, after.peak)]
    kinds = (("category at the peak", _categories), ("value at the peak", _values), ("layer", _layers))
    for what, figures in kinds:
        changes += sorted(_changes(what, figures(before), figures(after)), key=lambda each: -each.growth)
    return tuple(changes)


def _changes(what: str, before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[Change]:
    if 2 * len(before.keys() & after.keys()) < len(before):  # models of one process: `sequential` and `sequential_1`
        before, after = _without_numbers(before), _without_numbers(after)
    for name in dict.fromkeys((*after, *before)):
        if before.get(name, 0) != after.get(name, 0):
            yield Change(what, name, before.get(name, 0), after.get(name, 0))


def _without_numbers(figures: Mapping[str, float]) -> Mapping[str, float]:
    """Returns figures by names without the numbers that Keras and TensorFlow give names that come again."""
    found: dict[str, float] = {}
    for name, figure in figures.items():
        plain = _NUMBER.sub("", name)
        found[plain] = found.get(plain, 0) + figure
    return found


def _categories(report: Report) -> Mapping[str, float]:
    parts = [part for part in report.parts if part.operations]
    if not parts:
        return {}
    part = max(parts, key=lambda each: each.peak)
    return {category.value: size for category, size in part.operations[part.peak_index].live.items()}


def _values(report: Report) -> Mapping[str, float]:
    found: Counter[str] = Counter()
    parts = [part for part in report.parts if part.operations]
    if parts:
        part = max(parts, key=lambda each: each.peak)
        for value in part.alive_at(part.peak_index):
            found[value.name] += value.bytes
        if part.operations[part.peak_index].inside:
            found[f"in a loop or branch ({Category.TEMPORARIES.value})"] += part.operations[part.peak_index].inside
    return found


def _layers(report: Report) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for part in report.parts:
        for cost in layer_costs(part):
            found[cost.name] = found.get(cost.name, 0.0) + cost.flops
    return found
