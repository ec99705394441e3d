"""Runs a copy of a model split on its device, and one on stock Keras, for `check_parity`.

The plain run takes the batches one by one on the host: the gradients of all that make one update are added up before
the optimizer sees them, and moving statistics and metrics are kept for each replica.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_ipu.options.model_state import set_options
from keras_ipu.options.options import ReplicatedMetricReductionMethod
from keras_ipu.parity.norms import recording_norms, slots_of
from keras_ipu.parity.steps import assign, stock_training_steps, values_of
from keras_ipu.pipeline.graph import ModelKind, kind_of
from keras_ipu.saving.saving import copy_options
from keras_ipu.stock import models as keras_models
from keras_ipu.training.common.step_split import StepSplit

_ROUND_OFF = 1e-6
"""Gradients of a variable that are smaller, relative to the largest of all, are taken for zeros."""


@dataclasses.dataclass(frozen=True)
class TrainingTask:
    """Training task of both runs.

    Attributes:
        model: the user's model, which is copied and stays as it is.
        make: makes the model anew, or None for a copy by its config.
        split: how it is split.
        updates: how many weight updates.
        batches: of samples; update `u`, step `s`, replica `r` takes number `(u * steps + s) * replicas + r`.
    """

    model: Any
    make: Callable[[], Any] | None
    split: StepSplit
    updates: int
    batches: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """Result of a training run.

    Attributes:
        weights: by path, after the last update.
        logs: by name, a value for each batch.
        gradient_norms: of the gradients that the optimizer got, one for each update.
        round_off: those of `weights` whose gradients were nothing but round-off; the plain run alone looks.
    """

    weights: dict[str, np.ndarray]
    logs: dict[str, np.ndarray]
    gradient_norms: np.ndarray
    round_off: frozenset[str] = frozenset()


class _LogRecorder(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.logs: list[dict[str, Any]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.logs.append(dict(logs))


def split_run(task: TrainingTask) -> TrainingRun:
    """Trains a copy of the model on its device, split as it is."""
    with keras_models.strategy_of(task.model).scope():
        copy = _copy(task, steps_per_execution=task.split.accumulation_count)
        copy_options(task.model, copy)
        # Logs of every step and replica for themselves.
        alone = ReplicatedMetricReductionMethod.NONE
        set_options(
            copy, asynchronous_callbacks=True, replicated_metric_reduction=alone, pipelining_accumulate_outfeed=None
        )
        stacked = tf.nest.map_structure(lambda *arrays: tf.stack(arrays), *task.batches)
        keeper = _LogRecorder()
        dataset = tf.data.Dataset.from_tensor_slices(stacked)
        copy.fit(dataset, shuffle=False, verbose=0, callbacks=[keeper])
    return _run_of(copy, keeper.logs)


def plain_run(task: TrainingTask) -> TrainingRun:
    """Trains a copy of the model on stock Keras. To be called where no strategy's scope is open."""
    copy = _copy(task, jit_compile=False)
    steps = stock_training_steps(copy, task.batches[0])
    trained = {id(variable) for variable in copy.trainable_variables}
    others = [v for v in (*copy.variables, *copy.metrics_variables) if id(v) not in trained]
    states = [values_of(others)] * task.split.replicas
    logs, batches = [], iter(task.batches)
    largest = np.zeros(len(copy.trainable_variables))
    for _ in range(task.updates):
        total: list[Any] | None = None
        for _ in range(task.split.accumulation_count):
            for replica in range(task.split.replicas):
                assign(others, states[replica])
                step_logs, gradients = steps.gradients(next(batches))
                states[replica] = values_of(others)
                logs.append({name: float(value) for name, value in step_logs.items()})
                total = gradients if total is None else [_plus(a, b) for a, b in zip(total, gradients, strict=True)]
        assert total is not None
        largest = np.maximum(largest, [_largest(each) for each in total])
        steps.update(_reduced(total, task.split))
    copy.optimizer.finalize_variable_values(copy.trainable_weights)
    assign(others, states[0])
    run = _run_of(copy, logs)
    return dataclasses.replace(run, round_off=_round_off(copy, run, largest))


def _round_off(model: Any, run: TrainingRun, largest: np.ndarray) -> frozenset[str]:
    """Returns the names of the weights whose gradients were nothing but round-off.

    Args:
        model: the model that was trained.
        run: its training run.
        largest: for each of its trainable variables the largest number in the gradients.
    """
    least = _ROUND_OFF * np.nanmax(largest)
    vanishing = {id(v) for v, g in zip(model.trainable_variables, largest, strict=True) if g < least}
    named = zip(run.weights, model.weights, strict=True)
    return frozenset(name for name, weight in named if id(weight) in vanishing)


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a + b


def _largest(gradient: Any) -> float:
    return float("nan") if gradient is None else float(keras.ops.max(keras.ops.absolute(gradient)))


def _reduced(total: list[Any], split: StepSplit) -> list[Any]:
    parts = 1 if split.reduction == "SUM" else split.accumulation_count
    return [None if each is None else each / keras.ops.cast(parts, each.dtype) for each in total]


def _copy(task: TrainingTask, **compiled: Any) -> Any:
    """Returns a compiled copy of the model with its weights and optimizer's state, which records gradient norms."""
    model = task.model
    copy = task.make() if task.make is not None else _clone_by_config(model)
    if not copy.built:
        copy(keras.utils.unpack_x_y_sample_weight(task.batches[0])[0])
    assign(copy.variables, values_of(model.variables))
    config = keras_models.compile_config(model)
    optimizer = recording_norms(model.optimizer, task.updates)
    # The model's optimizer has Keras's loss scaling around it already, unless it is to have none.
    copy.compile(optimizer, config["loss"], loss_weights=config["loss_weights"], auto_scale_loss=False, **compiled)
    optimizer.build(copy.trainable_variables)
    if model.optimizer.built:
        assign(slots_of(optimizer), values_of(model.optimizer.variables))
    return copy


def _clone_by_config(model: Any) -> Any:
    if kind_of(model) is not ModelKind.SUBCLASSED:
        try:
            model.compiled = (
                False  # else Keras compiles the clone by the model's config, which not every loss goes into
            )
            return keras.models.clone_model(model)
        finally:
            model.compiled = True
    try:
        return type(model).from_config(model.get_config())
    except (NotImplementedError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"Model {model.name} cannot be made anew from its config: {error} Give `check_parity` a function that "
            "makes it, as `make=`."
        ) from error


def _run_of(model: Any, step_logs: Sequence[dict[str, Any]]) -> TrainingRun:
    weights = {weight.path: weight.numpy() for weight in model.weights}
    if len(weights) < len(model.weights):  # layers of the same name
        weights = {f"{place} {weight.path}": weight.numpy() for place, weight in enumerate(model.weights)}
    logs = {name: np.array([each[name] for each in step_logs], np.float32) for name in step_logs[0]}
    return TrainingRun(weights, logs, model.optimizer.recorded_norms.numpy())
