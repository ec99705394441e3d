"""Draws the pictures of the documents: `python docs/pictures/make_pictures.py` writes them beside this file.

With `--measure`, a pipeline runs first, on one JAX device for each of its stages; `measured.json` keeps its times, from
which the picture is drawn again.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from ipu_tf.pipeline import Measured, PipelineShape, Task, TaskKind, TimetablePicture, interleaved

HERE = Path(__file__).resolve().parent
TIMES = HERE / "measured.json"
STAGES, MICRO_BATCHES, UPDATES = 2, 8, 150


def pictures() -> dict[str, str]:
    """Returns the pictures as SVG documents, by the names of their files."""
    heading = "A pipeline of 4 stages on 4 IPUs: one weight update from 8 micro-batches, interleaved schedule"
    kept = json.loads(TIMES.read_text(encoding="utf-8"))
    measured = TimetablePicture(
        interleaved(PipelineShape(STAGES), MICRO_BATCHES),
        heading=f"A pipeline of 2 stages, one weight update: as planned, and below as measured on {kept['machine']}",
        measured=tuple(_task(*entry) for entry in kept["tasks"]),
    )
    return {
        "timetable.svg": TimetablePicture(interleaved(PipelineShape(4), 8), heading=heading).svg(width=860),
        "measured.svg": measured.svg(width=None),
    }


def _task(kind: str, stage: int, micro_batch: int | None, device: int, start: float, end: float) -> Measured:
    return Measured(Task(TaskKind(kind), stage, micro_batch), device, start, end)


def measure() -> dict[str, Any]:
    """Trains a pipeline; returns the times of its fastest weight update, in seconds."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={STAGES} --xla_cpu_multi_thread_eigen=false"
    import keras
    import numpy as np

    import ipu_tf as ipu
    from ipu_tf import pipeline

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = STAGES
    config.configure_ipu_system()
    pipeline.run_on_devices("devices", measure=True)
    x = np.random.default_rng(0).random((128 * MICRO_BATCHES, 768), np.float32)
    found: list[tuple[Measured, ...]] = []
    with ipu.ipu_strategy.IPUStrategy().scope():
        layers = [keras.layers.Dense(768, "relu") for _ in range(2 * STAGES)]
        model = keras.Sequential([keras.Input((768,)), *layers])
        model.set_pipeline_stage_assignment([place // 2 for place in range(2 * STAGES)])
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=MICRO_BATCHES,
            pipeline_schedule=ipu.ops.pipelining_ops.PipelineSchedule.Interleaved,
        )
        model.compile("sgd", "mse", steps_per_execution=MICRO_BATCHES)
        for _ in range(UPDATES):
            model.fit(x, x, batch_size=128, verbose=0)
            counts = pipeline.pipeline_counts()
            assert counts is not None
            found.append(counts.measured)
    best = min(found, key=lambda tasks: max(one.end for one in tasks))
    tasks = [
        [one.task.kind.value, one.task.stage, one.task.micro_batch, one.device, round(one.start, 6), round(one.end, 6)]
        for one in best
    ]
    return {"machine": f"{os.cpu_count()} processor cores, {STAGES} JAX devices", "tasks": tasks}


def main() -> None:
    """Measures where that is asked for, and writes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="run the pipeline again, and keep its times")
    if parser.parse_args().measure:
        TIMES.write_text(json.dumps(measure(), indent=None) + "\n", encoding="utf-8")
    for name, text in pictures().items():
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
