"""Benchmarks reports: `python -m benchmarks.report_cost`.

written   a report on ResNet-50's training step, in 4 stages with 8 micro-batches: seconds by the clock and of the
          processor, memory, sizes of its files. The step is compiled and not run.
off       microseconds of the processor for an execution of a small function as it is, against the same without records,
          spans and step annotations; rounds of both take turns in one process, and their ratios are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import keras
import numpy as np
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.run import executable, loop_run
from ipu_tf.device.run.run_record import RunRecord

STAGES, MICRO_BATCHES, BATCH, SIZE = 4, 8, 4, 64


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report_cost", description=__doc__)
    parser.add_argument("--only", choices=("written", "off"), help="one of the two")
    parser.add_argument("--rounds", type=int, default=40, help="how often each has its turn (%(default)s)")
    parser.add_argument("--executions", type=int, default=300, help="in a turn (%(default)s)")
    return parser.parse_args()


def compile_resnet() -> keras.Model:
    """Compiles the training step of ResNet-50 as a pipeline, as for a machine without IPUs: nothing is trained."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = STAGES
    config.device_connection.type = ipu.config.DeviceConnectionType.PRE_COMPILE
    config.device_connection.version = "ipu2"
    config.device_connection.enable_remote_buffers = True
    config.configure_ipu_system()
    x, y = np.zeros((BATCH * MICRO_BATCHES, SIZE, SIZE, 3), np.float32), np.zeros(BATCH * MICRO_BATCHES, np.int32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.applications.ResNet50(weights=None, input_shape=(SIZE, SIZE, 3), classes=10)
        with contextlib.redirect_stdout(io.StringIO()):  # its table of layers
            model.split_into_pipeline_stages(STAGES)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=MICRO_BATCHES)
        sgd = keras.optimizers.SGD(0.1, momentum=0.9)
        model.compile(sgd, "sparse_categorical_crossentropy", steps_per_execution=MICRO_BATCHES)
        model.fit(x, y, batch_size=BATCH, verbose=0)
    return model


def resident() -> float:
    """Returns the most memory that the process had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def timed(name: str, run: Callable[[], Any]) -> Any:
    """Prints the seconds that a call takes, and by how much it raised the most memory of the process."""
    before, clock, cpu = resident(), time.perf_counter(), time.process_time()
    made = run()
    clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    print(f"written   {name:18s} {clock:6.1f} s, {cpu:6.1f} s of the processor, {resident() - before:6.0f} MB more")
    return made


def write_report() -> None:
    """Prints what a report of ResNet-50's training step costs."""
    model = compile_resnet()
    report = timed("ipu_report", model.ipu_report)
    with tempfile.TemporaryDirectory() as folder:
        profile, page = Path(folder, "profile.pop"), Path(folder, "report.html")
        timed("save", lambda: ipu.reports.save(report, profile))
        timed("write_page", lambda: ipu.reports.write_page(report, page))
        sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.2f} MB" for path in (profile, page))
    operations, values = (sum(len(part) for part in parts) for parts in zip(*map(_listed, report.parts), strict=True))
    print(f"written   {operations} operations, {values} values; {sizes}")


def _listed(part: ipu.reports.Part) -> tuple[Any, Any]:
    return part.operations, part.values


@contextlib.contextmanager
def without_records() -> Iterator[None]:
    """Context in which executions are neither recorded nor marked for profiles and traces."""

    def nothing(*_: Any, **__: Any) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    replaced = [
        (executable, "report_executed"),
        (executable, "report_failed"),
        (executable, "span"),
        (loop_run, "span"),
        (loop_run, "log_chunk"),
        (RunRecord, "executed"),
        (RunRecord, "measuring"),
        (jax.profiler, "StepTraceAnnotation"),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name in replaced:
            stack.enter_context(mock.patch.object(owner, name, nothing))
        yield


def compare_executions(rounds: int, executions: int) -> float:
    """Prints the time of an execution with and without records; returns the median of the rounds' ratios."""
    ipu.config.IPUConfig().configure_ipu_system()
    strategy, x = ipu.ipu_strategy.IPUStrategy(), tf.ones([64])
    squares = tf.function(lambda x: tf.reduce_sum(x * x))
    taken: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds + 1):
        for recorded in (True, False) if number % 2 else (False, True):
            with contextlib.nullcontext() if recorded else without_records():
                start = time.process_time()
                for _ in range(executions):
                    strategy.run(squares, args=[x])
                taken[recorded].append((time.process_time() - start) / executions * 1e6)
    kept = {recorded: times[1:] for recorded, times in taken.items()}  # the first turn compiles
    for recorded, name in ((True, "as it is"), (False, "without records")):
        median, least = statistics.median(kept[recorded]), min(kept[recorded])
        print(f"off       {name:18s} {median:7.1f} us an execution; least {least:7.1f}")
    ratios = [one / other for one, other in zip(kept[True], kept[False], strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4)
    print(f"off       ratio {median:.3f}, middle half of {rounds} rounds {low:.3f} to {high:.3f}")
    return median


def main() -> None:
    """Runs what is asked for."""
    asked = options()
    if asked.only != "off":
        write_report()
    if asked.only != "written":
        compare_executions(asked.rounds, asked.executions)


if __name__ == "__main__":
    main()
