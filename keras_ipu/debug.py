"""`check_parity`: compares a split training run with plain Keras."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ipu_tf.ipu_iterator import stock_iterators
from keras_ipu.parity.report import Difference, ParityReport, difference, differences
from keras_ipu.parity.runs import TrainingRun, TrainingTask, plain_run, split_run
from keras_ipu.pipeline.run_checks import accumulation_count
from keras_ipu.stock.ownership import is_ipu_model
from keras_ipu.training.common.step_split import StepSplit, step_split

__all__ = ["Difference", "ParityReport", "check_parity"]

_TOLERANCE = 1e-4
_HALF_TOLERANCE = 2e-2


def check_parity(
    model: keras.Model,
    data: Any,
    updates: int = 3,
    *,
    batch_size: int = 32,
    rtol: float | None = None,
    atol: float = 1e-6,
    make: Callable[[], keras.Model] | None = None,
    show: bool = True,
) -> ParityReport:
    """Trains a few steps of a model twice, split on its device and plain, and compares the results.

    Both runs start from the model's weights and its optimizer's state, and take the same batches. The split run has the
    replicas, stages and accumulation that the model and its device are configured with. The plain one is stock Keras
    on the host: it adds up the gradients of all batches of an update, and then applies them once. The user's model
    stays as it is: copies are trained.

    Args:
        model: a compiled and built model of an `IPUStrategy`'s scope.
        data: a `tf.data.Dataset` of batches of one shape, as for `fit`, or arrays as `(x, y)` or
            `(x, y, sample_weight)`. It is repeated if it is short.
        updates: how many weight updates to make; each takes a batch for every micro-batch and replica.
        batch_size: samples of a batch, where `data` is arrays.
        rtol: differences to tolerate, relative to the largest value of an array: 1e-4 by default, 2e-2 for a model
            that computes in 16 bits.
        atol: what is tolerated beside that.
        make: makes the model anew, not compiled, with layers in the same order; needed for a subclassed model whose
            config does not say how. Without it the model is copied by its config.
        show: whether to print the report.

    Returns:
        The figures of every weight, of what the steps log (the loss) and of the gradient's norm, with a verdict.

    Raises:
        ValueError: for a model that is not of a strategy's scope, not compiled or not built, that cannot be copied, or
            for data without a single batch; and as `fit` does for settings that do not go together.
    """
    _check_model(model)
    split = step_split(model, accumulation_count(model, 0))  # no number of steps is given, so it divides them
    batches = _batches(data, batch_size, updates * split.accumulation_count * split.replicas)
    task = TrainingTask(model, make, split, updates, batches)
    found = split_run(task)
    # A thread of its own has no strategy's scope open, whatever this one has.
    with concurrent.futures.ThreadPoolExecutor(1, initializer=_same_policy()) as outside:
        wanted = outside.submit(plain_run, task).result()
    tolerance = rtol if rtol is not None else _HALF_TOLERANCE if _computes_in_half(model) else _TOLERANCE
    report = _report(task, found, wanted, tolerance, atol)
    if show:
        print(report)
    return report


def _check_model(model: Any) -> None:
    if not is_ipu_model(model):
        raise ValueError(f"Model {model.name} was not made in the scope of an IPUStrategy, so nothing of it is split.")
    if not model.compiled or model.optimizer is None:
        raise ValueError(f"Model {model.name} is not compiled with an optimizer. Call `compile` first.")
    if not model.built:
        raise ValueError(
            f"Model {model.name} has no weights to start from yet. Build it, or call it on a batch, first."
        )


def _batches(data: Any, batch_size: int, count: int) -> tuple[Any, ...]:
    if not isinstance(data, tf.data.Dataset):
        data = tf.data.Dataset.from_tensor_slices(data).batch(batch_size, drop_remainder=True)
    with stock_iterators():
        batches = tuple(data.repeat().take(count))
    if not batches:
        raise ValueError(f"The data has not a single batch. Received: {data.element_spec}.")
    return batches


def _same_policy() -> Callable[[], None]:
    policy = keras.config.dtype_policy()  # Keras keeps it for each thread
    return lambda: keras.config.set_dtype_policy(policy)


def _computes_in_half(model: Any) -> bool:
    return any(layer.compute_dtype in ("float16", "bfloat16") for layer in (model, *model.layers))


def _report(task: TrainingTask, found: TrainingRun, wanted: TrainingRun, rtol: float, atol: float) -> ParityReport:
    # Automatic names differ between the runs, so weights are paired by position.
    weights = dict(zip(wanted.weights, found.weights.values(), strict=True))
    model = task.model
    draws = len(model.variables) > len(model.weights)
    note = "the model draws random numbers, in dropout for example. Each replica and each side draws its own."
    return ParityReport(
        split=_described(task.split),
        updates=task.updates,
        rtol=rtol,
        atol=atol,
        variables=differences(weights, wanted.weights, wanted.round_off),
        logs=differences(found.logs, wanted.logs),
        gradient_norm=difference("gradient norm", np.array(found.gradient_norms), wanted.gradient_norms),
        notes=(note,) if draws else (),
    )


def _described(split: StepSplit) -> str:
    counts = ((split.replicas, "replica"), (split.accumulation_count, "micro-batch"), (split.shards, "IPU"))
    words = [f"{n} {word}{'' if n == 1 else 'es' if word.endswith('ch') else 's'}" for n, word in counts]
    return f"{words[0]} x {words[1]} an update x {words[2]} a replica"
