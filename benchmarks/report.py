"""Reports measurements as text and as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.comparisons import Comparison
from benchmarks.measuring import Measured
from benchmarks.workload import Workload


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Ratio of this project's time to the best of a family.

    Attributes:
        model, family: names.
        best: the family's fastest contender.
        part: our time over its, the median of the rounds' ratios.
        lowest, highest: of those ratios.
        goal: what part it is to be at most; None if nothing was set.
    """

    model: str
    family: str
    best: str
    part: float
    lowest: float
    highest: float
    goal: float | None

    def __str__(self) -> str:
        kept = "" if self.goal is None else f"   goal {self.goal:.2f}: {'met' if self.part <= self.goal else 'MISSED'}"
        return f"ours takes {self.part:5.2f} ({self.lowest:.2f} to {self.highest:.2f}) of {self.best}{kept}"


def verdicts(comparison: Comparison, workload: Workload, results: list[Measured]) -> list[Verdict]:
    """Returns the ratio of this project's time to the best of each family."""
    ours = next(result for result in results if result.contender.name == comparison.ours)
    others = [result for result in results if result is not ours]
    found = []
    for family in dict.fromkeys(result.contender.family for result in others):
        best = min((r for r in others if r.contender.family == family), key=lambda result: result.median)
        goal = comparison.goal(workload.name, family)
        found.append(Verdict(workload.name, family, best.contender.title, *ours.times(best), goal))
    return found


def table(comparison: Comparison, workload: Workload, results: list[Measured]) -> str:
    """The times, then the verdicts."""
    ours = next(result for result in results if result.contender.name == comparison.ours)
    width = max(len(result.contender.title) for result in results)
    lines = [f"  {'':<{width}}  {'ms/step':>9}  {'lowest':>9}  {'highest':>9}  {'times ours':>10}  {'ready s':>7}"]
    for result in results:
        times = f"{result.median:9.3f}  {min(result.rounds):9.3f}  {max(result.rounds):9.3f}"
        lines.append(
            f"  {result.contender.title:<{width}}  {times}  {result.times(ours)[0]:10.2f}  {result.ready:7.1f}"
        )
    return "\n".join([*lines, *(f"  {verdict}" for verdict in verdicts(comparison, workload, results))])


def summary(found: list[tuple[Comparison, Verdict]]) -> str:
    """Returns one line for each goal."""
    lines = ["", "Goals (our time over the best time of each family):"]
    for comparison, verdict in found:
        if verdict.goal is not None:
            kept = "met" if verdict.part <= verdict.goal else "MISSED"
            name = f"{comparison.name} {verdict.model}"
            lines.append(f"  {name:<24} {verdict.family:<28} {verdict.part:6.2f} of {verdict.goal:4.2f}  {kept}")
    return "\n".join(lines)


def as_json(results: dict[str, dict[str, list[Measured]]], about: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Returns all measurements for a JSON file, by comparison and model."""
    measured = {
        comparison: {model: {r.contender.name: _plain(r) for r in each} for model, each in of_comparison.items()}
        for comparison, of_comparison in results.items()
    }
    return {"machine": about, "rounds": rounds, "results": measured}


def _plain(result: Measured) -> dict[str, Any]:
    return {
        "title": result.contender.title,
        "steps_per_round": result.steps,
        "seconds_until_ready": result.ready,
        "milliseconds_per_step": result.rounds,
    }
