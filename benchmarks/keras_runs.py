"""Benchmark workloads in Keras: on the emulated IPU, on stock TensorFlow, on stock JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import ipu_tf as ipu
from benchmarks.keras_models import model_of, optimizer_of
from benchmarks.workload import Workload, random_batches

Run = Callable[[], float]
"""Goes through the steps of a round and gives the loss, or a sum of what was predicted."""


def on_ipu(workload: Workload, micro_batches: int = 1, stages: int = 1, **arguments: Any) -> Run:
    """Runs a workload with this project on the emulated IPU.

    Args:
        workload: what is trained.
        micro_batches: micro-batches of a weight update, each of the workload's batch size.
        stages: pipeline stages.
        arguments: see `stock`.
    """
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = _power_of_two(stages)
    cfg.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = model_of(workload)
        if stages > 1:
            model.set_pipeline_stage_assignment(_even_stages(model.get_pipeline_stage_assignment(), stages))
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=micro_batches)
        elif micro_batches > 1:
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=micro_batches)
        return _run(model, workload, **arguments)


def stock(workload: Workload, **arguments: Any) -> Run:
    """Runs a workload with stock Keras on the backend of KERAS_BACKEND. Arguments: `task`, and those of `compile`."""
    return _run(model_of(workload), workload, **arguments)


def _run(model: Any, workload: Workload, task: str, **compile_arguments: Any) -> Run:
    model.compile(
        loss="categorical_crossentropy",
        optimizer=optimizer_of(workload),
        metrics=["accuracy"],
        **compile_arguments,
    )
    data = epoch(workload)
    samples = {name: value for name, value in data.items() if name != "y"}
    runs: dict[str, Run] = {
        "train": lambda: float(model.fit(**data, verbose=0, shuffle=False).history["loss"][-1]),
        "evaluate": lambda: float(model.evaluate(**data, verbose=0)[0]),
        "predict": lambda: float(model.predict(**samples, verbose=0)[-1].sum()),
    }
    return runs[task]


def epoch(workload: Workload) -> dict[str, Any]:
    """An epoch of `workload.steps` batches, as arguments of `fit`."""
    samples, labels = (array.reshape(-1, *array.shape[2:]) for array in random_batches(workload))
    passes = workload.steps // workload.batches
    if workload.data == "dataset":
        batches = tf.data.Dataset.from_tensor_slices((samples, labels)).batch(workload.batch, drop_remainder=True)
        return {"x": batches.repeat(passes)}
    x, y = (np.tile(array, (passes, *[1] * (array.ndim - 1))) for array in (samples, labels))
    return {"x": x, "y": y, "batch_size": workload.batch}


def _even_stages(assignments: list[Any], stages: int) -> list[Any]:
    """Assigns equally many layers to each stage, in the order in which they run."""
    for place, assignment in enumerate(assignments):
        assignment.pipeline_stage = place * stages // len(assignments)
    return assignments


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
