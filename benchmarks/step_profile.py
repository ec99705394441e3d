"""Shows where the time of a training step goes: `python -m benchmarks.step_profile`.

For each model a process trains with this project and is recorded by JAX's profiler. XLA's operations are added up by
kind: calls of this project's native kernels by their names, oneDNN's convolutions, matrix products, fusions. Beside
them: how fast a product of matrices and an addition in memory are on this machine, measured in the same process.

A kind's time is that of the threads that ran it: kinds that run beside one another add up to more than the step.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax

from benchmarks.contenders import CONTENDERS
from benchmarks.startup import answer
from benchmarks.workload import WORKLOADS

CONTAINERS = ("while", "cond", "call", "conditional")
"""Operations that only run others, which are listed themselves."""
_TARGET = re.compile(r'^\s*(?:ROOT )?%?([\w.\-$]+) = .*custom_call_target="([^"]+)"')
_NATIVE = re.compile(r"^ipu_tf_|_[0-9a-f]{16}$")
_DUMP = "--xla_dump_to={} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_run"


def kinds_of_calls(folder: Path) -> dict[str, str]:
    """Maps the names of custom calls to their targets, in the optimized modules that XLA wrote to a folder."""
    return {
        found[1]: found[2]
        for file in folder.glob("*after_optimizations.txt")
        for line in file.read_text().splitlines()
        if (found := _TARGET.match(line))
    }


def operations(folder: Path) -> Iterator[tuple[str, float]]:
    """Yields the name and the milliseconds of each operation that JAX's profiler recorded."""
    for file in folder.rglob("*.trace.json.gz"):
        for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]:
            if event.get("ph") == "X" and "hlo_op" in event.get("args", {}):
                yield event["name"], event["dur"] / 1e3


def kind(name: str, calls: dict[str, str]) -> str | None:
    """Returns what an operation is counted as; None for those that only run others."""
    plain = name.split(".")[0].split("__")[0]
    if plain in CONTAINERS:
        return None
    if "onednn$convolution" in name:
        return "convolutions, oneDNN"
    if name in calls:
        return f"native {_NATIVE.sub('', calls[name])}"
    if plain in ("dot", "ynn_fusion") or "onednn$matmul" in name:
        return "matrix products"
    return "fusions" if "fusion" in plain else plain


def profile(model: str, dumped: Path) -> dict[str, Any]:
    """Trains a model in this process; returns milliseconds a step: of all of it, and by kind of operation."""
    workload = WORKLOADS[model]
    run = CONTENDERS["ipu"].prepare(workload, "train")
    run(), run()
    start = time.perf_counter()
    run()
    step = (time.perf_counter() - start) * 1e3 / workload.steps
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        calls, found = kinds_of_calls(dumped), collections.defaultdict[str, float](float)
        for name, milliseconds in operations(Path(folder)):
            found[kind(name, calls) or ""] += milliseconds / workload.steps
    found.pop("", None)
    return {
        "step": step,
        "kinds": dict(sorted(found.items(), key=lambda each: -each[1])),
        "peak": products(),
        "stream": stream(),
    }


def products(size: int = 2048) -> float:
    """GFLOP/s of a product of two float32 matrices, the best of five."""
    a = jax.device_put(np.ones((size, size), np.float32))
    return 2 * size**3 / _best(jax.jit(lambda a: a @ a), a) / 1e9


def stream(size: int = 1 << 26, times: int = 32) -> float:
    """GB/s of additions to a float32 array that no cache holds, in place: read once, written once. The best of five.

    In a long loop: memory of an array that is made anew is cleared by the system first, which takes longer.
    """
    a = jax.device_put(np.ones(size, np.float32))
    add = jax.jit(lambda a: lax.fori_loop(0, times, lambda _, a: a + 1, a))
    return 8 * size * times / _best(add, a) / 1e9


def _best(function: Any, *arguments: Any) -> float:
    times = []
    for _ in range(6):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return min(times[1:])


def profiled(model: str) -> dict[str, Any]:
    """Runs `profile` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        flags = f"{os.environ.get('XLA_FLAGS', '')} {_DUMP.format(folder)}"
        command = ["-m", "benchmarks.step_profile", "--models", model, "--probe", folder]
        return answer(command, XLA_FLAGS=flags, IPU_TF_CACHE="0")


def report(model: str, found: dict[str, Any], most: int) -> str:
    """The table of a model: its largest kinds, and their parts of all kinds."""
    whole = sum(found["kinds"].values())
    title = f"{WORKLOADS[model].title}: {found['step']:.1f} ms a step"
    lines = [f"{title}; products {found['peak']:.0f} GFLOP/s, memory {found['stream']:.1f} GB/s"]
    for name, milliseconds in list(found["kinds"].items())[:most]:
        lines.append(f"  {milliseconds:9.2f} ms {milliseconds / whole:5.0%}  {name}")
    return "\n".join(lines)


def main() -> None:
    """Profiles the models of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_profile", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--models", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help="what is trained (all)")
    add("--most", type=int, default=8, help="kinds that are listed (%(default)s)")
    add("--probe", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.probe is not None:
        print(json.dumps(profile(asked.models[0], asked.probe)))
        return
    for model in asked.models:
        print(f"\n{report(model, profiled(model), asked.most)}", flush=True)


if __name__ == "__main__":
    main()
