"""Benchmarks XLA's fusions into YNNPACK: `python -m benchmarks.fusions`.

The project's own training steps, compiled with one value of `--xla_cpu_experimental_ynn_fusion_type` or another. A
process for each value, all of them up at once, takes turns round by round; the least time of each counts, and the ratio
to the first one's round by round.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile

from benchmarks.contenders import CONTENDERS
from benchmarks.measuring import heading
from benchmarks.worker import Worker
from benchmarks.workload import WORKLOADS, Workload

_FLAG = "--xla_cpu_experimental_ynn_fusion_type="
_TYPE = "LIBRARY_FUSION_TYPE_"
#: Name in the table -> value of the option; None for the device's default.
VALUES: dict[str, str | None] = {
    "XLA's own": f"+{_TYPE}INDIVIDUAL_DOT",
    "products": None,
    "products and convolutions": f"{_TYPE}INDIVIDUAL_DOT,{_TYPE}INDIVIDUAL_CONVOLUTION",
    "none": "",
}


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fusions", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help="what is trained (all)")
    parser.add_argument("--values", nargs="+", choices=VALUES, default=list(VALUES), help="what is compared (all)")
    parser.add_argument(
        "--before", metavar="FOLDER", help="another checkout of this project, measured as well, as it is"
    )
    parser.add_argument("--contender", choices=CONTENDERS, default="ipu", help="who trains (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each has its turn (%(default)s)")
    return parser.parse_args()


def measured(workload: Workload, asked: argparse.Namespace) -> dict[str, list[float]]:
    """Milliseconds for a step, round by round, with each value."""
    places = {name: _environment(VALUES[name]) for name in asked.values}
    if asked.before:
        places = {"before": {"PYTHONSAFEPATH": "1", "PYTHONPATH": asked.before}, **places}
    times: dict[str, list[float]] = {name: [] for name in places}
    with contextlib.ExitStack() as stack:
        workers = {}
        for name, environment in places.items():
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            workers[name] = Worker(CONTENDERS[asked.contender], workload, "train", log, environment)
            stack.callback(workers[name].close)
            workers[name].ready()
        for number in range(asked.rounds + 1):
            first = number % len(workers)
            for name in [*workers][first:] + [*workers][:first]:
                times[name].append(workers[name].round() * 1e3)
    return {name: rounds[1:] for name, rounds in times.items()}


def _environment(value: str | None) -> dict[str, str]:
    return {} if value is None else {"XLA_FLAGS": _FLAG + value}


def row(workload: Workload, times: dict[str, list[float]]) -> str:
    """A line of the table: the least milliseconds of each value, and the median of its ratios to the first value."""
    [first, *_] = times.values()
    cells = [workload.title]
    for rounds in times.values():
        ratio = statistics.median(mine / base for mine, base in zip(rounds, first, strict=True))
        cells.append(f"{min(rounds):.4g}" if rounds is first else f"{min(rounds):.4g} ({ratio:.2f})")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    asked = options()
    print(heading(f"{asked.rounds} rounds"))
    names = ["before"] * bool(asked.before) + asked.values
    print(f"\n| ms a step | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for model in asked.models:
        print(row(WORKLOADS[model], measured(WORKLOADS[model], asked)), flush=True)


if __name__ == "__main__":
    main()
