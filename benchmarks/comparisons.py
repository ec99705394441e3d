"""Table of comparisons: contenders, models, and the goal of each ratio."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks.contenders import PROJECT
from benchmarks.workload import FAMILIES, WORKLOADS


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Comparison of one of this project's contenders with others.

    Attributes:
        name: its name on the command line.
        title: its title in the table.
        ours, others: names of contenders.
        models: names of workloads.
        task: "train", "evaluate" or "predict".
        goals: for each family, the largest ratio of this project's time to its best; None for those of the workload.
    """

    name: str
    title: str
    ours: str
    others: tuple[str, ...]
    models: tuple[str, ...] = tuple(WORKLOADS)
    task: str = "train"
    goals: Mapping[str, float] | None = None

    def goal(self, model: str, family: str) -> float | None:
        """Returns the largest ratio to the family's best time that meets the goal; None if there is none."""
        return (WORKLOADS[model].goals if self.goals is None else self.goals).get(family)


_STOCK = ("tf", "tf-jit", "tf-nojit", "tf-loop", "keras-jax", "keras-jax-loop")
_INFERENCE: dict[str, Any] = {
    "models": ("cnn", "mobilenetv2", "transformer"),
    "goals": dict(zip(FAMILIES, (0.6, 0.85, 0.95), strict=True)),
}

COMPARISONS = {
    comparison.name: comparison
    for comparison in (
        Comparison("train", "training, the best settings of each", "ipu", (*_STOCK, "jax", "jax-scan")),
        Comparison(
            "as-written",
            "training, steps_per_execution left at 1",
            "ipu-written",
            ("tf", "keras-jax"),
            goals=dict.fromkeys(FAMILIES, 1.0),
        ),
        Comparison("predict", "predict", "ipu", (*_STOCK, "jax"), task="predict", **_INFERENCE),
        Comparison("evaluate", "evaluate", "ipu", _STOCK, task="evaluate", **_INFERENCE),
        Comparison(
            "split",
            "training split into 8 micro-batches and 4 stages on one device, against unsplit",
            "ipu-8-4",
            ("ipu", "ipu-8"),
            models=("transformer",),
            goals={PROJECT: 1.1},
        ),
    )
}
