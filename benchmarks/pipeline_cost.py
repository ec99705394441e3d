"""Benchmarks a pipeline against plain gradient accumulation, as ratios in one run.

time      seconds per sample of a pipeline of 4 stages on one device, against a loop with the same model, optimizer
          and accumulation; rounds of both take turns, and medians are compared (goal: at most 1.1)
compile   the first run less a later one, with 256 micro-batches to an update against 16 (goal: within 20 %)
dispatch  executables given to 4 virtual CPU devices, against the tasks in the timetable (goal: the same number)
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, RecomputationMode, pipeline
from ipu_tf.pipeline import pipeline_counts, run_on_devices

tf1 = tf.compat.v1
STAGES = 4
LAYERS = 2
"""In each stage."""
THEN, WITH = RecomputationMode.RecomputeThenBackpropagate, RecomputationMode.RecomputeAndBackpropagateInterleaved
DISPATCHED = (
    (PipelineSchedule.Grouped, None),
    (PipelineSchedule.Grouped, THEN),
    (PipelineSchedule.Interleaved, None),
    (PipelineSchedule.Interleaved, THEN),
    (PipelineSchedule.Sequential, None),
    (PipelineSchedule.Sequential, WITH),
)

Run = Callable[[], None]


def stage(number: int, width: int, x: tf.Tensor) -> tf.Tensor:
    """Some dense layers; the last stage gives the loss."""
    for layer in range(LAYERS):
        rng = np.random.default_rng(number * LAYERS + layer)
        first = (rng.normal(size=(width, width)) / width**0.5).astype(np.float32)
        with tf1.variable_scope("model", reuse=tf1.AUTO_REUSE, use_resource=True):
            x = tf.nn.relu(x @ tf1.get_variable(f"kernel{number}_{layer}", initializer=first))
    return x if number < STAGES - 1 else tf.reduce_mean(x * x)


def prepared(piped: bool, count: int, updates: int, arguments: argparse.Namespace, **options: Any) -> Run:
    """Returns a function that runs a program in a session of its own and returns its losses; not compiled yet.

    Args:
        piped: as a pipeline, or as a plain loop.
        count: micro-batches to an update.
        updates: in a run.
        arguments: the batch and the width.
        options: of the pipeline.
    """
    graph = tf.Graph()
    with graph.as_default():
        data = np.random.default_rng(0).normal(size=(64, arguments.batch, arguments.width)).astype(np.float32)
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(data).repeat())
        out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        stages = [lambda x, number=number: stage(number, arguments.width, x) for number in range(STAGES)]

        def momentum() -> Any:
            return tf1.train.MomentumOptimizer(1e-4, 0.9)

        def as_pipeline() -> Any:
            return pipeline(
                stages,
                count,
                repeat_count=updates,
                infeed_queue=queue,
                outfeed_queue=out,
                outfeed_loss=True,
                optimizer_function=lambda loss: OptimizerFunctionOutput(momentum(), loss),
                **options,
            )

        def step(x: tf.Tensor) -> Any:
            for each in stages:
                x = each(x)
            trained = ipu.optimizers.GradientAccumulationOptimizerV2(momentum(), count).minimize(x)
            return [out.enqueue(x), trained]

        def as_loop() -> Any:
            return ipu.loops.repeat(count * updates, step, [], queue)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            program = ipu.ipu_compiler.compile(as_pipeline if piped else as_loop, [])
        losses = out.dequeue()
        session = tf1.Session(graph=graph)
        session.run([tf1.global_variables_initializer(), queue.initializer])

    def run() -> None:
        session.run(program)
        session.run(losses)

    return run


def seconds(run: Run) -> float:
    """Returns the seconds that a run takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare_times(arguments: argparse.Namespace) -> float:
    """Prints seconds per sample of both; returns their ratio."""
    runs = {
        piped: prepared(piped, 16, arguments.updates, arguments, device_mapping=[0] * STAGES) for piped in (True, False)
    }
    for run in runs.values():
        run()  # compiles
    taken: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(arguments.rounds):
        for piped, run in runs.items():
            taken[piped].append(seconds(run))
    samples = 16 * arguments.updates * arguments.batch
    for piped, name in ((True, "pipeline of 4 stages"), (False, "plain accumulation")):
        print(f"time      {name:22s} {1e6 * statistics.median(taken[piped]) / samples:9.2f} us per sample")
    ratio = statistics.median(taken[True]) / statistics.median(taken[False])
    print(f"time      ratio {ratio:.3f} (goal: at most 1.1; median of {arguments.rounds} rounds, accumulation 16)")
    return ratio


def compare_compilation(arguments: argparse.Namespace) -> float:
    """Prints compile times with few and many micro-batches; returns their ratio."""
    taken: dict[int, list[float]] = {16: [], 256: []}
    for _ in range(arguments.compilations):
        for count, found in taken.items():
            run = prepared(True, count, 1, arguments, device_mapping=[0] * STAGES)
            first = seconds(run)
            found.append(first - seconds(run))
    for count, found in taken.items():
        print(f"compile   accumulation {count:3d}: {statistics.median(found):.2f} s")
    ratio = statistics.median(taken[256]) / statistics.median(taken[16])
    print(f"compile   ratio {ratio:.3f} (goal: 0.8 to 1.2; median of {arguments.compilations})")
    return ratio


def count_dispatches(arguments: argparse.Namespace) -> bool:
    """Prints the dispatches of each schedule to four devices; returns whether they are those of the timetables."""
    run_on_devices("devices")
    right = True
    for schedule, mode in DISPATCHED:
        prepared(True, 16, 1, arguments, pipeline_schedule=schedule, recomputation_mode=mode)()
        counts = pipeline_counts()
        assert counts is not None and counts.timetable is not None
        wanted = Counter((placed.device, placed.task.kind) for placed in counts.timetable.placed())
        same = dict(wanted) == dict(counts.executions)
        right = right and same
        name = f"{schedule.name}, {mode.name if mode else 'activations kept'}"
        numbers = f"{sum(counts.executions.values())} of {sum(wanted.values())}"
        print(f"dispatch  {name:52s} {numbers:12s} {'as the timetable says' if same else 'DIFFERENT'}")
    return right


def main(given: Sequence[str] | None = None) -> int:
    """Prints everything; exit code 1 where dispatches are not those of the timetable."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pipeline_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=("time", "compile", "dispatch"), help="one part; all by default")
    parser.add_argument("--batch", type=int, default=64, help="samples in a micro-batch (default: %(default)s)")
    parser.add_argument("--width", type=int, default=256, help="of each of the 8 layers (default: %(default)s)")
    parser.add_argument("--updates", type=int, default=8, help="weight updates in a run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="timed runs of each (default: %(default)s)")
    parser.add_argument("--compilations", type=int, default=3, help="of each count (default: %(default)s)")
    parser.add_argument("--on-devices", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = STAGES if arguments.on_devices else 1  # a plain loop on four would be four replicas
    config.configure_ipu_system()
    if arguments.on_devices:
        return 0 if count_dispatches(arguments) else 1
    run_on_devices("loop")
    if arguments.only in (None, "time"):
        compare_times(arguments)
    if arguments.only in (None, "compile"):
        compare_compilation(arguments)
    return _in_four_devices(arguments) if arguments.only in (None, "dispatch") else 0


def _in_four_devices(arguments: argparse.Namespace) -> int:
    """Counts the dispatches in a process with four devices, a number that is fixed when JAX starts."""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    sizes = ["--batch", str(arguments.batch), "--width", str(arguments.width)]
    command = [sys.executable, "-m", "benchmarks.pipeline_cost", "--on-devices", *sizes]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
