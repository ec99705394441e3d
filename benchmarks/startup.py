"""Measures time to the first step, import time and memory: `python -m benchmarks.startup`.

Every figure is of a process of its own, and the median of several, which take turns.

import       seconds for `import tensorflow, jax` and, after it, for `import ipu_tf`
first step   seconds from `fit` to its end, with a single step: tracing and compiling
again        the same in a second process, with the executables on disk
peak         megabytes that the process took at most, after some steps
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS, Contender
from benchmarks.memory import peak_bytes
from benchmarks.workload import WORKLOADS

WHO = ("ipu-written", "tf", "keras-jax")
_IMPORTS = """
import json, time
start = time.perf_counter(); import tensorflow, jax
middle = time.perf_counter(); import ipu_tf
print(json.dumps({"stock": middle - start, "ours": time.perf_counter() - middle}))
"""


def probe(name: str, model: str, steps: int) -> None:
    """Measures, in a process of its own, the seconds of the first step and the megabytes after some more."""
    contender, workload = CONTENDERS[name], WORKLOADS[model]
    run = contender.prepare(workload.with_steps(1), "train")
    start = time.perf_counter()
    run()
    first = time.perf_counter() - start
    for _ in range(steps):
        run()
    print(json.dumps({"first": first, "peak": peak_bytes() / 2**20}))


def answer(command: list[str], **environment: str) -> dict[str, Any]:
    """Returns the last line of a process's output, parsed as JSON."""
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment}
    done = subprocess.run([sys.executable, *command], env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} failed:\n{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def probed(contender: Contender, model: str, steps: int, cache: Path | None = None) -> dict[str, float]:
    """Runs `probe` for a contender in a process."""
    flags = {} if cache is None else {"TF_POPLAR_FLAGS": f"--executable_cache_path={cache}"}
    command = ["-m", "benchmarks.startup", "--probe", contender.name, "--models", model, "--steps", str(steps)]
    return answer(command, KERAS_BACKEND=contender.backend, **flags)


def compare(model: str, rounds: int, steps: int) -> None:
    """Prints a model's table."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in (*WHO, "again")}
    for _ in range(rounds):
        for name in WHO:
            found[name].append(probed(CONTENDERS[name], model, steps))
        with tempfile.TemporaryDirectory() as cache:
            probed(CONTENDERS[WHO[0]], model, 0, Path(cache))
            found["again"].append(probed(CONTENDERS[WHO[0]], model, steps, Path(cache)))
    print(f"\n{WORKLOADS[model].title}\n  {'':<42}  {'first step, s':>13}  {'peak, MB':>9}")
    for name, each in found.items():
        title = "this project, executables on disk" if name == "again" else CONTENDERS[name].title
        first, peak = (statistics.median(one[key] for one in each) for key in ("first", "peak"))
        print(f"  {title:<42}  {first:13.2f}  {peak:9.0f}", flush=True)


def imports(rounds: int) -> None:
    """Prints the seconds that imports take."""
    found = [answer(["-c", _IMPORTS]) for _ in range(rounds)]
    stock, ours = (statistics.median(one[key] for one in found) for key in ("stock", "ours"))
    print(f"import tensorflow, jax: {stock:.2f} s; import ipu_tf after it: {ours:.2f} s")


def main() -> None:
    """Runs the measurements selected on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--models", nargs="+", choices=WORKLOADS, default=["cnn", "transformer"], help="what is trained (%(default)s)")
    add("--rounds", type=int, default=3, help="how many processes each (%(default)s)")
    add("--steps", type=int, default=10, help="steps after the first, for the memory (%(default)s)")
    add("--probe", choices=CONTENDERS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.probe is not None:
        probe(asked.probe, asked.models[0], asked.steps)
        return
    imports(asked.rounds)
    for model in asked.models:
        compare(model, asked.rounds, asked.steps)


if __name__ == "__main__":
    main()
