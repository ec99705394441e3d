"""Measures how cost grows with depth, batch, accumulation and replicas: `python -m benchmarks.growth`.

Time per step and time until the first step against depth, batch size, the length of the loop, micro-batches of an
update and replicas, on a dense network on the emulated device. A line ends with the exponent of the growth that the
figures show: 0 is flat, 1 is linear.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

import ipu_tf as ipu
from benchmarks.growth_chart import growth_chart

WIDTH = 256


@dataclasses.dataclass(frozen=True)
class Setting:
    """A network and how it is trained.

    Attributes:
        depth: hidden layers of WIDTH units.
        batch: samples of a micro-batch on a replica.
        steps: steps of an execution, a multiple of `micro_batches`.
        micro_batches: of a weight update.
        replicas: of the model.
    """

    depth: int = 4
    batch: int = 32
    steps: int = 256
    micro_batches: int = 1
    replicas: int = 1


@dataclasses.dataclass(frozen=True)
class Cost:
    """Measured cost of a setting.

    Attributes:
        first: seconds from `fit` to the end of the first execution, less the time of a later one.
        step: milliseconds for a step, on all replicas together: the least of several executions.
    """

    first: float
    step: float


VARIED: dict[str, tuple[int, ...]] = {
    "depth": (2, 4, 8, 16, 32),
    "batch": (8, 32, 128, 512),
    "steps": (64, 256, 1024, 4096),
    "micro_batches": (1, 4, 16, 64, 256),
    "replicas": (1, 2, 4, 8, 16),
}


def cost(setting: Setting, executions: int) -> Cost:
    """Trains with a setting and returns its cost."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = setting.replicas
    cfg.configure_ipu_system()
    samples = np.random.default_rng(0).random((setting.batch * setting.steps * setting.replicas, WIDTH), np.float32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        hidden = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(setting.depth)]
        model = keras.Sequential([keras.Input((WIDTH,)), *hidden, keras.layers.Dense(1)])
        if setting.micro_batches > 1:
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=setting.micro_batches)
        model.compile("sgd", "mse", steps_per_execution=setting.steps)

        def execution() -> float:
            start = time.perf_counter()
            model.fit(samples, samples[:, :1], batch_size=setting.batch, shuffle=False, verbose=0)
            return time.perf_counter() - start

        first = execution()
        later = min(execution() for _ in range(executions))
    return Cost(first - later, later / setting.steps * 1e3)


def exponent(values: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of a straight line through the logarithms: how often costs double where values double."""
    x, y = np.log(np.array(values, float)), np.log(np.maximum(np.array(costs, float), 1e-9))
    return float(np.polyfit(x, y, 1)[0]) if len(values) > 1 else math.nan


def measured(name: str, executions: int) -> list[tuple[int, Cost]]:
    """Measures costs while one quantity is varied."""
    found = []
    for value in VARIED[name]:
        replace = {name: value}
        if name == "micro_batches":
            replace["steps"] = max(VARIED[name])
        found.append((value, cost(dataclasses.replace(Setting(), **replace), executions)))
    return found


def table(name: str, found: list[tuple[int, Cost]]) -> str:
    """A row for time per step and one for time until the first step."""
    values = [value for value, _ in found]
    head = f"{name:<14}" + "".join(f"{value:>10}" for value in values) + "   exponent"
    rows = [head]
    for title, costs in (("ms/step", [c.step for _, c in found]), ("first, s", [c.first for _, c in found])):
        rows.append(f"  {title:<12}" + "".join(f"{c:>10.3f}" for c in costs) + f"   {exponent(values, costs):8.2f}")
    return "\n".join(rows)


def main() -> None:
    """Runs the measurements selected on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__.split("\n\n")[1])
    parser.add_argument("--vary", nargs="+", choices=VARIED, default=list(VARIED), help="what is varied (all)")
    parser.add_argument("--executions", type=int, default=3, help="of which the fastest counts (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--chart", type=Path, metavar="FILE.svg", help="draw them there")
    asked = parser.parse_args()
    results = {}
    for name in asked.vary:
        results[name] = measured(name, asked.executions)
        print(table(name, results[name]), flush=True)
    if asked.json is not None:
        plain = {name: [[value, dataclasses.asdict(c)] for value, c in found] for name, found in results.items()}
        asked.json.write_text(json.dumps(plain, indent=2) + "\n")
    if asked.chart is not None:
        lines = {name: [(value, c.step, c.first) for value, c in found] for name, found in results.items()}
        asked.chart.write_text(growth_chart(lines))


if __name__ == "__main__":
    main()
