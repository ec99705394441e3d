"""Grid of all step splits of a Keras model's training, against plain Keras: `python -m tests.helpers.keras_grid`.

Replicas x accumulation x stages x steps per execution x kind of model x backend of Keras: AdamW with clipping, decay
and a schedule where an execution is one update, SGD with momentum, clipping and decay where it is the whole epoch.
Weights, predictions, losses, metrics and norms of gradients have to agree within 1e-5 of their largest element; a case
of 1/1/1 has to give the same bits with executions of 1, 8 and 96 steps. Prints a line for each and the worst
difference; the exit status is 0 if all agree. A sample of it is in `tests/keras_ipu/training/test_keras_split.py`, and
in `tests/helpers/keras_jax_checks.py` for the JAX backend. Each backend runs in a process of its own. The order is
mixed, so that the first cases are a sample of all. With `--updates` the cases are those of
`tests/helpers/keras_updates.py`: optimizers x clipping x {dense, embedding, tied embedding} x splits.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

import tests.conftest  # noqa: F401 - settings that TensorFlow reads when it is imported
from ipu_tf.ops.pipelining_ops import PipelineSchedule
from keras_ipu.parity.report import Difference
from tests.helpers.keras_updates import Update, updates
from tests.keras_ipu.training.test_keras_split import (
    BATCHES,
    KINDS,
    RTOL,
    adamw,
    differences,
    momentum,
    on_device,
    plain,
)

REPLICAS = (1, 2, 4)
ACCUMULATION = (1, 4, 8)
STAGES = (1, 2, 4)
BACKENDS = ["tensorflow", "jax"]
STRIDE = 11


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
        make = adamw if self.steps == self.accumulation else momentum
        found = on_device(self.replicas, self.accumulation, self.stages, self.steps, self.kind, make, **schedule)
        wanted = _plain(self.replicas * self.accumulation, self.kind, make)
        return max(differences(found, wanted), key=lambda each: each.relative)


@dataclasses.dataclass(frozen=True)
class OneOfEach:
    """The case of 1/1/1 with executions of 1, 8 and 96 steps, which give the same bits.

    Attributes:
        kind: of model.
    """

    kind: str

    def worst(self) -> Difference:
        """The largest difference between any two of them: of weights, predictions, losses, metrics and norms."""
        first, *others = [on_device(1, 1, 1, steps, self.kind) for steps in (1, 8, BATCHES)]
        found = [each for other in others for each in differences(other, first)]
        wrong = [each for each in found if each.absolute]
        return wrong[0] if wrong else found[0]


AnyCase = Case | OneOfEach | Update


def cases(kinds: Sequence[str]) -> Iterator[Case]:
    """All cases with these kinds of model: an execution is one update, or the whole epoch."""
    for replicas, accumulation, stages, kind in itertools.product(REPLICAS, ACCUMULATION, STAGES, kinds):
        for steps in (accumulation, BATCHES // replicas):
            yield Case(replicas, accumulation, stages, steps, kind)


def mixed(grid: Sequence[AnyCase]) -> list[AnyCase]:
    """The same in another order: every eleventh, from each place on. Neighbours differ in all that they may."""
    return [case for first in range(STRIDE) for case in grid[first::STRIDE]]


@functools.cache
def _plain(parts: int, kind: str, make: Callable[[], Any]) -> dict[str, Any]:
    return plain(parts, kind, make)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the grid; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.keras_grid", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=sorted(KINDS), help="kinds of model")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS, help="backends of Keras")
    parser.add_argument("--updates", action="store_true", help="optimizers, clipping and embeddings instead")
    parser.add_argument("--first", type=int, default=0, help="how many cases to leave out, from the first on (0)")
    parser.add_argument("--count", type=int, help="how many cases; all by default")
    wanted = parser.parse_args(arguments)
    if wanted.backends == [keras.backend.backend()]:
        grid: list[AnyCase] = [*updates()] if wanted.updates else [*map(OneOfEach, wanted.kinds), *cases(wanted.kinds)]
        return _run(mixed(grid)[wanted.first :][: wanted.count])
    others = ["--kinds", *wanted.kinds, *["--updates"] * wanted.updates, "--first", str(wanted.first)]
    others += [] if wanted.count is None else ["--count", str(wanted.count)]
    return max([_run_in_a_process(backend, others) for backend in wanted.backends])


def _run_in_a_process(backend: str, arguments: Sequence[str]) -> int:
    """Runs the grid where Keras has this backend, which is chosen when it is imported."""
    print(f"Keras on {backend}:", flush=True)
    command = [sys.executable, "-m", "tests.helpers.keras_grid", "--backends", backend, *arguments]
    return subprocess.run(command, env={**os.environ, "KERAS_BACKEND": backend}, check=False).returncode


def _run(grid: Sequence[AnyCase]) -> int:
    # Keras makes arrays of JAX's in a way that NumPy 2 no longer likes.
    warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
    if not isinstance(grid[0], Update):
        print(f"{'replicas':>8} {'accumulation':>12} {'stages':>6} {'steps':>5} {'kind':<10} abs. diff. rel. diff.")
    begun = time.monotonic()
    found = [(_shown(case), case) for case in grid]
    worst, case = max(found, key=lambda pair: np.nan_to_num(pair[0].relative, nan=np.inf))
    wrong = sum(not _agrees(*pair) for pair in found)
    print(f"{len(found)} cases in {time.monotonic() - begun:.0f} s, {wrong} differ from plain Keras.")
    print(f"The worst relative difference is {worst.relative:.1e}, of {worst.name}: {case}.")
    return 1 if wrong else 0


def _shown(case: AnyCase) -> Difference:
    """Runs a case and prints its line. One that fails differs by infinity: the others run all the same."""
    try:
        worst = case.worst()
    except Exception:
        traceback.print_exc()
        worst = Difference("a run that failed", (), 1.0, float("inf"))
    agrees = "" if _agrees(worst, case) else "  DIFFERS"
    print(f"{_named(case)} {worst.absolute:10.1e} {worst.relative:10.1e}{agrees}", flush=True)
    return worst


def _agrees(worst: Difference, case: AnyCase) -> bool:
    return worst.within(0.0 if isinstance(case, OneOfEach) else RTOL, 0.0)


def _named(case: AnyCase) -> str:
    if isinstance(case, OneOfEach):
        return f"{1:8} {1:12} {1:6} {'all':>5} {case.kind:<10}"
    if isinstance(case, Update):
        return str(case)
    return f"{case.replicas:8} {case.accumulation:12} {case.stages:6} {case.steps:5} {case.kind:<10}"


if __name__ == "__main__":
    sys.exit(main())
