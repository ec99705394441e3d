"""Measures what it costs to divide replicas among processes of one machine: `python -m benchmarks.instances`.

A training step of a dense network under `poprun`, in one process and in several, which take turns, round by round:

strong    4 replicas in 1, 2 and 4 processes
weak      2 replicas in each of 1, 2 and 4 processes

Ratios are to one process with as many replicas in the same round: the work is the same, and on one machine, whose cores
they share, what is measured is overhead. Printed are medians of the rounds so far, and the least and largest ratio.

ms        of a step, by the clock: the least of several calls of `fit`
CPU ms    of a step, in all processes together
bytes     through the loopback interface in a step, each counted once, against those of the model's weights. Other
          programs that use it are counted too.
start     seconds from the start of poprun to the end of the first execution
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import popdist
from ipu_tf.distributed.popdist_strategy import PopDistStrategy
from ipu_tf.popdist.tensorflow import set_ipu_config

SCALING = {"strong": ((1, 4), (2, 4), (4, 4)), "weak": ((1, 2), (2, 4), (4, 8))}
"""Numbers of processes, and of replicas of all of them."""
LAYERS, EXECUTION, EXECUTIONS, CALLS = 4, 8, 4, 4
"""Hidden layers, steps of an execution, executions of a timed `fit`, and how many of these."""
_BEGAN = "IPU_TF_BENCHMARK_BEGAN"


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of a step in one division.

    Attributes:
        ms: by the clock.
        cpu: milliseconds of the processors, of all processes.
        moved: bytes through the loopback interface, in proportion to those of the weights.
        packets: that they were.
        start: seconds to the end of the first execution.
    """

    ms: float
    cpu: float
    moved: float
    packets: float
    start: float


Round = dict[tuple[int, int], Cost]


def measured(width: int, batch: int) -> Cost:
    """Trains in this process, one of those that poprun started, and returns what a step costs."""
    popdist.init()
    set_ipu_config(ipu.config.IPUConfig()).configure_ipu_system()
    x = np.ones((EXECUTIONS * EXECUTION * batch * popdist.getNumLocalReplicas(), width), np.float32)
    with PopDistStrategy().scope():
        model = _network(width)

        def fit(executions: int = EXECUTIONS) -> float:
            began, given = time.perf_counter(), x[: len(x) // EXECUTIONS * executions]
            model.fit(given, given[:, :1], batch_size=batch, shuffle=False, verbose=0)
            return time.perf_counter() - began

        fit(1)
        start = time.time() - float(os.environ[_BEGAN])
        fit()
        popdist.synchronize()
        used, before = time.process_time(), _loopback()
        seconds = min(fit() for _ in range(CALLS))
        cpu, after = time.process_time() - used, _loopback()
    everywhere = ipu.distributed.allreduce(np.float64(cpu), tf.distribute.ReduceOp.SUM)
    steps, size = CALLS * EXECUTIONS * EXECUTION, sum(weight.nbytes for weight in model.get_weights())
    ms = seconds / (EXECUTIONS * EXECUTION) * 1e3
    moved, packets = (after[0] - before[0]) / steps / size, (after[1] - before[1]) / steps
    return Cost(ms, float(everywhere) / steps * 1e3, moved, packets, start)


def _network(width: int) -> keras.Model:
    """Returns hidden layers of a width and a last layer, compiled."""
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(LAYERS)]
    model = keras.Sequential([keras.Input((width,)), *hidden, keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=EXECUTION)
    return model


def _loopback() -> tuple[int, int]:
    """Returns how many bytes and packets the loopback interface has received; zeros where Linux does not say."""
    try:
        lines = Path("/proc/net/dev").read_text().splitlines()
    except OSError:
        return 0, 0
    [numbers] = [line.partition(":")[2].split() for line in lines if line.strip().startswith("lo:")]
    return int(numbers[0]), int(numbers[1])


def run(processes: int, replicas: int, chosen: argparse.Namespace) -> Cost:
    """Runs one division under poprun, and returns what instance 0 measured."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measured"
        own = ["--width", str(chosen.width), "--batch", str(chosen.batch), "--measure", str(path)]
        poprun = [sys.executable, "-c", "from ipu_tf._poprun.command_line import main; main()"]
        division = ["--num-instances", str(processes), "--num-replicas", str(replicas)]
        command = [*poprun, *division, sys.executable, "-m", "benchmarks.instances", *own]
        surroundings = {**os.environ, _BEGAN: str(time.time())}
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        return Cost(**json.loads(path.read_text()))


def table(title: str, divisions: Iterable[tuple[int, int]], rounds: list[Round]) -> str:
    """Returns a table of divisions, each against one process of the same round."""
    head = (f"{title}: processes, replicas", "ms", "of one", "CPU ms", "of one", "bytes", "packets", "start, s")
    lines = [head, ("---",) * len(head)]
    for division in divisions:
        values = {name: _median(rounds, division, name) for name in Cost.__annotations__}
        clock, cpu = (_ratios(rounds, division, name) for name in ("ms", "cpu"))
        sent = (f"{values['moved']:.2f}", f"{values['packets']:.0f}", f"{values['start']:.1f}")
        lines.append((", ".join(map(str, division)), f"{values['ms']:.1f}", clock, f"{values['cpu']:.1f}", cpu, *sent))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _median(rounds: list[Round], division: tuple[int, int], name: str) -> float:
    return statistics.median(getattr(costs[division], name) for costs in rounds)


def _ratios(rounds: list[Round], division: tuple[int, int], name: str) -> str:
    """Returns the median, the least and the largest ratio of a division to one process."""
    one = (1, division[1])
    ratios = [getattr(costs[division], name) / getattr(costs[one], name) for costs in rounds]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def print_tables(chosen: argparse.Namespace) -> None:
    """Measures the divisions, round by round, and prints each and the tables so far."""
    divisions = dict.fromkeys(
        each for name in chosen.scaling for pair in SCALING[name] for each in ((1, pair[1]), pair)
    )
    rounds: list[Round] = []
    for number in range(chosen.rounds):
        print(f"round {number + 1}, load average {os.getloadavg()[0]:.1f}", flush=True)
        rounds.append({})
        for each in divisions:
            rounds[-1][each] = run(*each, chosen)
            print(f"{each[0]} processes, {each[1]} replicas: {rounds[-1][each]}", flush=True)
        print(*(table(name, SCALING[name], rounds) for name in chosen.scaling), sep="\n\n", flush=True)


def main() -> None:
    """Prints both tables; with a hidden argument measures in one of the processes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.instances",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--width", type=int, default=384, help="units of each hidden layer (384)")
    parser.add_argument("--batch", type=int, default=256, help="samples of a step on a replica (256)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each division runs (3)")
    parser.add_argument("--scaling", nargs="+", choices=SCALING, default=list(SCALING), help="which tables (both)")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        cost = measured(chosen.width, chosen.batch)
        if popdist.getInstanceIndex() == 0:
            Path(chosen.measure).write_text(json.dumps(vars(cost)))
        return
    print_tables(chosen)


if __name__ == "__main__":
    main()
