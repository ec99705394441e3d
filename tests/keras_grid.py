"""Every way to split a Keras model's training, against plain Keras: `python -m tests.keras_grid`.

Replicas x accumulation x stages x steps per execution x kind of model x backend of Keras: AdamW with clipping, decay
and a schedule where an execution is one update, SGD with momentum, clipping and decay where it is the whole epoch.
Weights, predictions, losses, metrics and norms of gradients have to agree within 1e-5 of their largest element. Prints
a line for each and the worst difference; the exit status is 0 if all agree. A sample of it is in
`tests/test_keras_split.py`, and in `tests/keras_jax_checks.py` for the JAX backend. Each backend runs in a process of
its own.
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
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

import tests.conftest  # noqa: F401 - settings that TensorFlow reads when it is imported
from ipu_tf.ops.pipelining_ops import PipelineSchedule
from keras_ipu.parity_report import Difference
from tests.test_keras_split import BATCHES, KINDS, RTOL, adamw, differences, momentum, on_device, plain

REPLICAS = (1, 2, 4)
ACCUMULATION = (1, 4, 8)
STAGES = (1, 2, 4)
BACKENDS = ["tensorflow", "jax"]


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


def cases(kinds: Sequence[str]) -> Iterator[Case]:
    """All cases with these kinds of model: an execution is one update, or the whole epoch."""
    for replicas, accumulation, stages, kind in itertools.product(REPLICAS, ACCUMULATION, STAGES, kinds):
        for steps in (accumulation, BATCHES // replicas):
            yield Case(replicas, accumulation, stages, steps, kind)


@functools.cache
def _plain(parts: int, kind: str, make: Callable[[], Any]) -> dict[str, Any]:
    return plain(parts, kind, make)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the grid; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.keras_grid", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=sorted(KINDS), help="kinds of model")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS, help="backends of Keras")
    wanted = parser.parse_args(arguments)
    if wanted.backends == [keras.backend.backend()]:
        return _run(list(cases(wanted.kinds)))
    return max([_run_in_a_process(backend, wanted.kinds) for backend in wanted.backends])


def _run_in_a_process(backend: str, kinds: Sequence[str]) -> int:
    """Runs the grid where Keras has this backend, which is chosen when it is imported."""
    print(f"Keras on {backend}:", flush=True)
    command = [sys.executable, "-m", "tests.keras_grid", "--backends", backend, "--kinds", *kinds]
    return subprocess.run(command, env={**os.environ, "KERAS_BACKEND": backend}, check=False).returncode


def _run(grid: Sequence[Case]) -> int:
    # Keras makes arrays of JAX's in a way that NumPy 2 no longer likes.
    warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
    print(f"{'replicas':>8} {'accumulation':>12} {'stages':>6} {'steps':>5} {'kind':<10} {'abs. diff.':>10} rel. diff.")
    found, begun = [], time.monotonic()
    for case in grid:
        worst = case.worst()
        found.append((worst, case))
        agrees = "" if worst.within(RTOL, 0.0) else "  DIFFERS"
        row = f"{case.replicas:8} {case.accumulation:12} {case.stages:6} {case.steps:5} {case.kind:<10}"
        print(f"{row} {worst.absolute:10.1e} {worst.relative:10.1e}{agrees}", flush=True)
    worst, case = max(found, key=lambda pair: pair[0].relative)
    wrong = sum(not each.within(RTOL, 0.0) for each, _ in found)
    print(f"{len(found)} cases in {time.monotonic() - begun:.0f} s, {wrong} differ from plain Keras.")
    print(f"The worst relative difference is {worst.relative:.1e}, of {worst.name}: {case}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
