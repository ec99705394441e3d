"""How fast a training loop is: this project, stock Keras and JAX by hand, as ratios measured in one run.

round 1   ipu  tf  tf-jit  ...  jax-scan      each contender is a process of its own, ready and idle
round 2   tf  tf-jit  ...  jax-scan  ipu      until its turn; who goes first changes from round to round
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS, OURS, Contender
from benchmarks.worker import Worker
from benchmarks.workload import WORKLOADS, Workload

PACKAGES = ("tensorflow", "keras", "jax", "numpy")


@dataclasses.dataclass(frozen=True)
class Measured:
    """A contender's times.

    Attributes:
        contender: whose.
        steps: training steps of a round.
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

    def ratio(self, ours: Measured) -> float:
        """Its time over ours, the median of the rounds' ratios: above 1 it is the slower."""
        return statistics.median(a / b for a, b in zip(self.rounds, ours.rounds, strict=True))


@contextlib.contextmanager
def workers(contenders: list[Contender], workload: Workload) -> Iterator[dict[str, tuple[Worker, float]]]:
    """The contenders' processes and the seconds each took to get ready. They get ready one after the other."""
    with contextlib.ExitStack() as stack:
        started = {}
        for contender in contenders:
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            worker = Worker(contender, workload, log)
            stack.callback(worker.close)
            started[contender.name] = worker, worker.ready()
            print(f"  ready: {contender.title} ({started[contender.name][1]:.1f} s)", flush=True)
        yield started


def measure(workload: Workload, contenders: list[Contender], rounds: int) -> list[Measured]:
    """The contenders' times, taken in turns. The first turn, with all processes just up, is not counted."""
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    with workers(contenders, workload) as started:
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


def table(workload: Workload, results: list[Measured]) -> str:
    """The results as a table, then each family's best."""
    ours = next(result for result in results if result.contender.name == OURS)
    width = max(len(result.contender.title) for result in results)
    lines = [f"{workload.title}", f"  {'':<{width}}  {'ms/step':>9}  {'lowest':>9}  {'highest':>9}  {'times ours':>10}"]
    for result in results:
        low, high = min(result.rounds), max(result.rounds)
        times = f"{result.median:9.3f}  {low:9.3f}  {high:9.3f}  {result.ratio(ours):10.2f}"
        lines.append(f"  {result.contender.title:<{width}}  {times}")
    for family in dict.fromkeys(result.contender.family for result in results if result is not ours):
        ratios = [result.ratio(ours) for result in results if result.contender.family == family]
        best = min(ratios)
        verdict = f"{best:.2f} times faster" if best >= 1 else f"{1 / best:.2f} times slower"
        lines.append(f"  this project is {verdict} than {family}{' at its best' if ratios[1:] else ''}")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    load = os.getloadavg()[0]
    versions = {name: version(name) for name in PACKAGES}
    return {"processors": os.cpu_count(), "load_before": round(load, 2), "versions": versions}


def as_json(results: dict[str, list[Measured]], about: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Everything measured, for a file."""
    measured = {
        name: {
            result.contender.name: {
                "title": result.contender.title,
                "steps_per_round": result.steps,
                "seconds_until_ready": result.ready,
                "milliseconds_per_step": result.rounds,
            }
            for result in of_workload
        }
        for name, of_workload in results.items()
    }
    return {"machine": about, "rounds": rounds, "results": measured}


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures the time of a training step: this project, stock Keras, JAX by hand. Each runs in a "
        "process of its own; compilation is left out; nothing else should run on the machine.",
    )
    others = [name for name in CONTENDERS if name != OURS]
    add = parser.add_argument
    add("--models", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help="what is trained (both)")
    add("--against", nargs="+", choices=others, default=others, help="what this project is compared with (all)")
    add("--rounds", type=_positive, default=7, help="how often each has its turn (%(default)s)")
    add("--steps", type=_positive, help="training steps of a turn, for all models (each has its own number)")
    add("--json", type=Path, metavar="FILE", help="write everything measured there as well")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"wanted 1 or more, received {text}")
    return number


def main() -> None:
    """Measures what the command line asks for and prints a table for each model."""
    asked = options()
    contenders = [CONTENDERS[name] for name in (OURS, *asked.against)]
    about = machine()
    print(f"{about['processors']} processors, load {about['load_before']}, {asked.rounds} rounds; ", end="")
    print(", ".join(f"{name} {number}" for name, number in about["versions"].items()))
    results = {}
    for name in asked.models:
        workload = WORKLOADS[name] if asked.steps is None else WORKLOADS[name].with_steps(asked.steps)
        print(f"\n{workload.title}: {workload.steps} steps a round")
        results[name] = measure(workload, contenders, asked.rounds)
        print("\n" + table(workload, results[name]), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(as_json(results, about, asked.rounds), indent=2) + "\n")


if __name__ == "__main__":
    main()
