"""Benchmarks native kernels: `python -m benchmarks.native_kernels`.

Training steps with them, with `IPU_TF_NATIVE=0`, and of stock Keras on TensorFlow. A process for each, all of them up
at once, takes turns round by round; the least and the median time of a step are printed.
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

#: Name in the table -> contender, and what its environment has.
MEASURED: dict[str, tuple[str, dict[str, str]]] = {
    "with": ("ipu", {}),
    "without": ("ipu", {"IPU_TF_NATIVE": "0"}),
    "Keras on TensorFlow": ("tf", {}),
}


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.native_kernels", description=__doc__)
    convolutions = ["cnn", "cnn8", "resnet", "mobilenet"]
    parser.add_argument("--models", nargs="+", choices=WORKLOADS, default=convolutions, help="what is trained")
    parser.add_argument("--rounds", type=int, default=6, help="how often each has its turn (%(default)s)")
    return parser.parse_args()


def measured(workload: Workload, rounds: int) -> dict[str, list[float]]:
    """Milliseconds for a step, round by round."""
    times: dict[str, list[float]] = {name: [] for name in MEASURED}
    with contextlib.ExitStack() as stack:
        workers = {}
        for name, (contender, environment) in MEASURED.items():
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            workers[name] = Worker(CONTENDERS[contender], workload, "train", log, environment)
            stack.callback(workers[name].close)
            workers[name].ready()
        for _ in range(rounds):
            for name, worker in workers.items():
                times[name].append(worker.round() * 1e3)
    return times


def main() -> None:
    """Prints the table."""
    asked = options()
    print(heading(f"{asked.rounds} rounds"))
    print(f"\n| ms a step, least / median | {' | '.join(MEASURED)} |\n{'|---' * (len(MEASURED) + 1)}|")
    for model in asked.models:
        times = measured(WORKLOADS[model], asked.rounds)
        cells = [f"{min(each):.1f} / {statistics.median(each):.1f} |" for each in times.values()]
        print(f"| {WORKLOADS[model].title} |", *cells, flush=True)


if __name__ == "__main__":
    main()
