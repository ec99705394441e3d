"""Every way to split a Keras model's training, against plain Keras: `python -m tests.keras_grid`.

Replicas x accumulation x stages x steps per execution x kind of model, AdamW with clipping, decay and a schedule.
Prints a line for each and the worst difference; the exit status is 0 if all agree. A sample of it is in
`tests/test_keras_split.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import tests.conftest  # noqa: F401 - settings that TensorFlow reads when it is imported
from ipu_tf.ops.pipelining_ops import PipelineSchedule
from keras_ipu.parity_report import Difference, difference
from tests.test_keras_split import BATCHES, KINDS, on_device, plain

REPLICAS = (1, 2, 4)
ACCUMULATION = (1, 4, 8)
STAGES = (1, 2, 4)
RTOL, ATOL = 1e-4, 5e-6


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to split.

    Attributes:
        replicas: copies of the model.
        accumulation: batches of a replica to an update.
        stages: of the pipeline; 1 for none.
        steps: of an execution, for each replica.
        kind: of model.
    """

    replicas: int
    accumulation: int
    stages: int
    steps: int
    kind: str

    def worst(self) -> Difference:
        """The largest difference from plain Keras, relative to what it is the difference of.

        Raises:
            AssertionError: if there were more or fewer updates, or the device did not run all steps.
        """
        # The default schedule fills and drains the pipeline in groups; the others run the counts that it cannot.
        grouped = self.accumulation % (2 * self.stages) == 0
        schedule: dict[str, Any] = {} if grouped else {"pipeline_schedule": PipelineSchedule.Sequential}
        found = on_device(self.replicas, self.accumulation, self.stages, self.steps, self.kind, **schedule)
        wanted = _plain(self.replicas * self.accumulation, self.kind)
        assert found["updates"] == wanted["updates"], (found["updates"], wanted["updates"])
        pairs = list(zip(found["weights"], wanted["weights"], strict=True))
        named = [difference(f"weight {place}", *pair) for place, pair in enumerate(pairs)]
        named.append(difference("predictions", found["predicted"], wanted["predicted"]))
        return max(named, key=lambda each: each.relative)


def cases(kinds: Sequence[str]) -> Iterator[Case]:
    """All cases with these kinds of model: an execution is one update, or the whole epoch."""
    for replicas, accumulation, stages, kind in itertools.product(REPLICAS, ACCUMULATION, STAGES, kinds):
        for steps in (accumulation, BATCHES // replicas):
            yield Case(replicas, accumulation, stages, steps, kind)


@functools.cache
def _plain(parts: int, kind: str) -> dict[str, Any]:
    return plain(parts, kind)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the grid; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.keras_grid", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=sorted(KINDS), help="kinds of model")
    grid = list(cases(parser.parse_args(arguments).kinds))
    print(f"{'replicas':>8} {'accumulation':>12} {'stages':>6} {'steps':>5} {'kind':<10} {'abs. diff.':>10} rel. diff.")
    found, begun = [], time.monotonic()
    for case in grid:
        worst = case.worst()
        found.append((worst, case))
        agrees = "" if worst.within(RTOL, ATOL) else "  DIFFERS"
        row = f"{case.replicas:8} {case.accumulation:12} {case.stages:6} {case.steps:5} {case.kind:<10}"
        print(f"{row} {worst.absolute:10.1e} {worst.relative:10.1e}{agrees}", flush=True)
    worst, case = max(found, key=lambda pair: pair[0].relative)
    wrong = sum(not each.within(RTOL, ATOL) for each, _ in found)
    print(f"{len(found)} cases in {time.monotonic() - begun:.0f} s, {wrong} differ from plain Keras.")
    print(f"The worst relative difference is {worst.relative:.1e}, of {worst.name}: {case}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
