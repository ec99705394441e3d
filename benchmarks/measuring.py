"""Times contenders by turns, each in a process of its own.

round 1   ipu  tf  tf-jit  ...  jax-scan      each is ready and idle until its turn;
round 2   tf  tf-jit  ...  jax-scan  ipu      who goes first changes from round to round
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

import jax

from benchmarks.contenders import Contender
from benchmarks.worker import Worker
from benchmarks.workload import Workload

PACKAGES = ("tensorflow", "keras", "jax", "numpy")


@dataclasses.dataclass(frozen=True)
class Measured:
    """Times of a contender.

    Attributes:
        contender: whose.
        steps: steps of a round.
        ready: seconds until it had compiled and run two rounds.
        rounds: milliseconds for a step, round by round.
    """

    contender: Contender
    steps: int
    ready: float
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Milliseconds for a step."""
        return statistics.median(self.rounds)

    def times(self, other: Measured) -> tuple[float, float, float]:
        """Ratios of its time to the other's, round by round: the median, the lowest and the highest."""
        ratios = [mine / its for mine, its in zip(self.rounds, other.rounds, strict=True)]
        return statistics.median(ratios), min(ratios), max(ratios)


def measure(workload: Workload, contenders: list[Contender], task: str, rounds: int) -> list[Measured]:
    """Times contenders by turns. The first turn, right after the processes start, is not counted."""
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    with workers(contenders, workload, task) as started:
        for worker, _ in started.values():
            worker.round()
        for number in range(rounds):
            first = number % len(contenders)
            for contender in contenders[first:] + contenders[:first]:
                times[contender.name].append(started[contender.name][0].round() * 1e3)
        return [
            Measured(worker.contender, worker.steps, ready, tuple(times[name]))
            for name, (worker, ready) in started.items()
        ]


@contextlib.contextmanager
def workers(contenders: list[Contender], workload: Workload, task: str) -> Iterator[dict[str, tuple[Worker, float]]]:
    """Starts the contenders' processes one after the other; returns them and the seconds that each took to prepare."""
    with contextlib.ExitStack() as stack:
        started = {}
        for contender in contenders:
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            worker = Worker(contender, workload, task, log)
            stack.callback(worker.close)
            started[contender.name] = worker, worker.ready()
        yield started


def machine() -> dict[str, Any]:
    """Describes the machine and the software versions that the figures depend on."""
    load = os.getloadavg()[0]
    versions = {name: version(name) for name in PACKAGES}
    return {"processors": os.cpu_count(), "load_before": round(load, 2), "versions": versions}


def least_call(function: Callable[..., Any], operands: Sequence[Sequence[jax.Array]], rounds: int) -> float:
    """Returns the least microseconds of a call, which goes through the operands; the first time is not counted."""
    times = []
    for turn in range(len(operands) * (rounds + 1)):
        start = time.perf_counter()
        jax.block_until_ready(function(*operands[turn % len(operands)]))
        times.append((time.perf_counter() - start) * 1e6)
    return min(times[len(operands) :])


def heading(detail: str) -> str:
    """Returns the first line of a report: the machine, a detail of the run, and the software versions."""
    about = machine()
    return f"{about['processors']} processors, load {about['load_before']}, {detail}; {about['versions']}"
