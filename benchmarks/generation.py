"""Benchmarks text generation: `python -m benchmarks.generation`.

GPT-2 of random weights, greedy, one prompt: KerasHub on this project's device, with quantised weights too, stock
KerasHub, a decode loop written by hand in JAX, and reading as many bytes as the weights have.
A process each; they take turns, round by round. Ratios are medians over the rounds. The processor's time is shown
beside: on a machine that others use it varies less.

compile   seconds that the first run takes more than later ones: tracing and compiling
peak      megabytes that a process has at most in later runs, more than before its model was made; and their ratio to
          the model's weights and cache in float32
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.generation_runs import PROMPT, SIZES, TINY, Run, Sizes, by_hand, kerashub, stream
from benchmarks.measuring import heading
from benchmarks.memory import forget_peak, peak_bytes, resident_bytes

CONTENDERS: dict[str, tuple[str, Callable[[Sizes, int], Run]]] = {
    "ours-tf": ("tensorflow", functools.partial(kerashub, ours=True)),
    "ours-jax": ("jax", functools.partial(kerashub, ours=True)),
    "int8": ("tensorflow", functools.partial(kerashub, ours=True, mode="int8")),
    "int4": ("tensorflow", functools.partial(kerashub, ours=True, mode="int4")),
    "stock-tf": ("tensorflow", functools.partial(kerashub, ours=False)),
    "stock-jax": ("jax", functools.partial(kerashub, ours=False)),
    "by-hand": ("jax", by_hand),
    "stream": ("jax", stream),
}
"""By name: Keras's backend, and what makes the run."""
WHOM = [name for name in CONTENDERS if not name.startswith("int")]
"""Who generates by default: not those that take minutes to quantise."""
Times = tuple[float, float, float]
"""Seconds of a round, on the clock and of the processors; megabytes at its peak."""


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generation", description=__doc__)
    add = parser.add_argument
    add("--models", nargs="+", choices=SIZES, default=["gpt2"], help="which (%(default)s)")
    add("--whom", nargs="+", choices=CONTENDERS, default=WHOM, help="who generates (%(default)s)")
    add("--tokens", type=int, default=128, help="of a round (%(default)s)")
    add("--rounds", type=int, default=5, help="how often each has its turn (%(default)s)")
    add("--serve", nargs=2, metavar=("WHO", "MODEL"), help=argparse.SUPPRESS)
    return parser.parse_args()


class Process:
    """Process of a contender; ready when it has compiled and run once.

    Args:
        name: of the contender.
        model: name of the model.
        tokens: of a round.

    Attributes:
        first: the first round, compilation included.
    """

    def __init__(self, name: str, model: str, tokens: int) -> None:
        command = [sys.executable, "-m", "benchmarks.generation", "--serve", name, model, "--tokens", str(tokens)]
        variables = {**os.environ, "KERAS_BACKEND": CONTENDERS[name][0], "TF_CPP_MIN_LOG_LEVEL": "3"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, env=variables, text=True, **pipes)  # type: ignore[call-overload]
        self.first = self.round()

    def round(self) -> Times:
        """Generates once."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self._process.args[2:])} failed: run it by hand, and press Enter")
        clock, processors, peak = json.loads(line)
        return clock, processors, peak

    def close(self) -> None:
        """Terminates the process."""
        self._process.kill()
        self._process.communicate()


def serve(name: str, model: str, tokens: int) -> None:
    """Runs a round for each line of standard input, and prints its times."""
    answers, sys.stdout = sys.stdout, sys.stderr
    make = CONTENDERS[name][1]
    make(TINY, 2)()  # imports and threads are not of the model
    before = resident_bytes()
    run = make(SIZES[model], tokens)
    for _ in sys.stdin:
        resident_bytes()
        forget_peak()
        start, used = time.perf_counter(), time.process_time()
        run()
        times = time.perf_counter() - start, time.process_time() - used
        print(json.dumps([*times, (peak_bytes() - before) / 1e6]), file=answers, flush=True)


@contextlib.contextmanager
def processes(names: list[str], model: str, tokens: int) -> Iterator[dict[str, Process]]:
    """Starts the contenders' processes one after the other."""
    with contextlib.ExitStack() as stack:
        started = {}
        for name in names:
            started[name] = Process(name, model, tokens)
            stack.callback(started[name].close)
        yield started


def measured(started: dict[str, Process], rounds: int) -> dict[str, list[Times]]:
    """Times of each contender, round by round; who goes first changes from round to round."""
    times: dict[str, list[Times]] = {name: [] for name in started}
    for number in range(rounds):
        first = number % len(started)
        for name in [*started][first:] + [*started][:first]:
            times[name].append(started[name].round())
    return times


def rows(times: dict[str, list[Times]], started: dict[str, Process], tokens: int, needed: float) -> Iterator[str]:
    """Lines of a table: milliseconds a token, compilation, memory, and the medians of the ratios to each contender."""
    yield f"| | ms a token | of processors | compile, s | of processors | peak, MB | clock / {' | / '.join(times)} |"
    yield f"|---|---|---|---|---|---|{'---|' * len(times)}"
    for name, mine in times.items():
        clock, used, peak = (statistics.median(each[kind] for each in mine) for kind in range(3))
        first = started[name].first
        cells = [f"{1e3 * clock / tokens:.3g}", f"{1e3 * used / tokens:.3g}"]
        cells += [f"{first[0] - clock:.1f}", f"{first[1] - used:.1f}", f"{peak:.0f} ({peak / needed:.2f})"]
        for its in times.values():
            ratios = [statistics.median(a[kind] / b[kind] for a, b in zip(mine, its, strict=True)) for kind in (0, 1)]
            cells.append(f"{ratios[0]:.2f} ({ratios[1]:.2f})")
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Prints a table for each model; in brackets the ratios of the processors' times."""
    asked = options()
    if asked.serve:
        name, model = asked.serve
        serve(name, model, asked.tokens)
        return
    print(heading(f"{asked.rounds} rounds"))
    for model in asked.models:
        table(model, asked)


def table(name: str, asked: argparse.Namespace) -> None:
    """Prints a model's table."""
    model = SIZES[name]
    weights, cache = model.weight_bytes / 1e6, model.cache_bytes(PROMPT + asked.tokens) / 1e6
    print(f"\n{name}: {asked.tokens} tokens, {weights:.0f} MB of weights, {cache:.0f} MB of cache", flush=True)
    with processes(asked.whom, name, asked.tokens) as started:
        print("all are ready\n", flush=True)
        measured_times = measured(started, asked.rounds)
        print("\n".join(rows(measured_times, started, asked.tokens, weights + cache)), flush=True)


if __name__ == "__main__":
    main()
