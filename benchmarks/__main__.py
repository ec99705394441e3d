"""Command line of the benchmarks: this project, stock Keras and hand-written JAX, as ratios measured in one run."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from benchmarks.chart import chart
from benchmarks.comparisons import COMPARISONS, Comparison
from benchmarks.contenders import CONTENDERS
from benchmarks.measuring import Measured, machine, measure
from benchmarks.report import Verdict, as_json, summary, table, verdicts
from benchmarks.workload import BY_HAND, WORKLOADS


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures the time of a step: this project, stock Keras, JAX by hand. Each runs in a process of "
        "its own; compilation is left out; nothing else should run on the machine.",
    )
    add = parser.add_argument
    add("--compare", nargs="+", choices=COMPARISONS, default=list(COMPARISONS), help="what is compared (all)")
    add("--models", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help="what is trained (all)")
    add("--against", nargs="+", choices=CONTENDERS, help="leave out the others (default: all)")
    add("--rounds", type=_positive, default=5, help="how often each has its turn (%(default)s)")
    add("--steps", type=_positive, help="steps of a turn, for all models (each has its own number)")
    add("--data", choices=["arrays", "dataset"], default="arrays", help="what Keras is given (%(default)s)")
    add("--json", type=Path, metavar="FILE", help="write everything measured there as well")
    add("--chart", type=Path, metavar="FILE.svg", help="draw the ratios there")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"wanted 1 or more, received {text}")
    return number


def compared(asked: argparse.Namespace, comparison: Comparison, model: str) -> list[Measured]:
    """Measures a model in a comparison and prints its table."""
    workload = dataclasses.replace(WORKLOADS[model], data=asked.data)
    workload = workload if asked.steps is None else workload.with_steps(asked.steps)
    names = [name for name in comparison.others if asked.against is None or name in asked.against]
    print(f"\n{comparison.title}: {workload.title}, {workload.steps} steps a round", flush=True)
    contenders = [CONTENDERS[name] for name in (comparison.ours, *names)]
    contenders = [one for one in contenders if workload.by_hand or one.family != BY_HAND]
    results = measure(workload, contenders, comparison.task, asked.rounds)
    print(table(comparison, workload, results), flush=True)
    return results


def main() -> None:
    """Runs the measurements selected on the command line, and prints a table for each model and a summary."""
    asked = options()
    about = machine()
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    head = f"{about['processors']} processors, load {about['load_before']}, {asked.rounds} rounds; {versions}"
    print(head)
    results: dict[str, dict[str, list[Measured]]] = {}
    found: list[tuple[Comparison, Verdict]] = []
    for name in asked.compare:
        comparison = COMPARISONS[name]
        for model in (model for model in comparison.models if model in asked.models):
            measured = compared(asked, comparison, model)
            results.setdefault(name, {})[model] = measured
            found += [(comparison, verdict) for verdict in verdicts(comparison, WORKLOADS[model], measured)]
    print(summary(found))
    if asked.json is not None:
        asked.json.write_text(json.dumps(as_json(results, about, asked.rounds), indent=2) + "\n")
    if asked.chart is not None:
        asked.chart.write_text(chart(found, head))


if __name__ == "__main__":
    main()
