"""Random Keras programs on the device and on stock Keras: history, predictions, weights and optimizer have to agree.

    python -m tests.helpers.random_fits --cases 500 --seed 7        KERAS_BACKEND chooses the backend

A program is a model of one or two outputs, data of one kind and any size, and arguments of `fit`, callbacks included.
Sizes are odd on purpose: batches that do not divide the data, executions that do not divide the batches, fewer samples
than a batch. Some are split into replicas and micro-batches: stock Keras then runs their effective batches.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import keras
import numpy as np
import tensorflow as tf
from hypothesis import strategies as st
from keras import layers

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

WIDTH, CLASSES = 6, 3
SAMPLES = 45
X = np.random.default_rng(0).normal(size=(SAMPLES, WIDTH)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, CLASSES, SAMPLES).astype(np.int32)
TARGETS = np.random.default_rng(2).normal(size=(SAMPLES, CLASSES)).astype(np.float32)
WEIGHTS = np.random.default_rng(3).uniform(0.2, 2.0, SAMPLES).astype(np.float32)

LAYERS: dict[str, Callable[[], list[keras.layers.Layer]]] = {
    "dense": lambda: [layers.Dense(5, "tanh")],
    "regularised": lambda: [layers.Dense(4, "elu", kernel_regularizer="l2", activity_regularizer="l2")],
    "batch norm": lambda: [layers.BatchNormalization(momentum=0.8)],
    "layer norm": lambda: [layers.LayerNormalization()],
    "unit norm": lambda: [layers.UnitNormalization()],
    "convolution": lambda: [layers.Reshape((-1, 1)), layers.Conv1D(3, 2, activation="tanh"), layers.Flatten()],
    "recurrent": lambda: [layers.Reshape((-1, 1)), layers.GRU(3)],
}
OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "sgd": lambda: keras.optimizers.SGD(0.05),
    "momentum": lambda: keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.01, epsilon=1e-2),
    "clipped": lambda: keras.optimizers.SGD(0.05, global_clipnorm=0.5),
}
MEANS_OVER_BATCHES = () if keras.backend.backend() == "jax" else ("first_loss", "second_loss")
"""What `fit` shows of batches that are split: on JAX means over samples, which do not depend on it."""
SPLIT_DEPENDENT = (*MEANS_OVER_BATCHES, "learning_rate")
CALLBACKS: dict[str, Callable[[], keras.callbacks.Callback]] = {
    "early stopping": lambda: keras.callbacks.EarlyStopping("loss", min_delta=1e-2, patience=1),
    "best weights": lambda: keras.callbacks.EarlyStopping("loss", patience=0, restore_best_weights=True),
    "plateau": lambda: keras.callbacks.ReduceLROnPlateau("loss", factor=0.3, patience=1, min_delta=1e-2),
    "schedule": lambda: keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / (1 + epoch)),
    "batches": lambda: BatchLosses(),
}


@dataclasses.dataclass(frozen=True)
class Fit:
    """A random program.

    Attributes:
        layers: names from `LAYERS`, between the input and the last layer.
        optimizer: a name from `OPTIMIZERS`.
        classifies: whether targets are classes.
        kind: of data: "array", "dataset", "unknown" (a dataset of unknown sizes), "generator", "py_dataset".
        samples: how many there are.
        batch: samples of a batch.
        weighted: whether data has sample weights.
        steps_per_execution: of the model in the scope.
        arguments: further ones of `fit`.
        outputs: of the model.
        accumulation: batches to an update.
        replicas: copies of the model.
        callbacks: names from `CALLBACKS`.
    """

    layers: tuple[str, ...]
    optimizer: str
    classifies: bool
    kind: str
    samples: int
    batch: int
    weighted: bool
    steps_per_execution: int
    arguments: dict[str, Any]
    outputs: int = 1
    accumulation: int = 1
    replicas: int = 1
    callbacks: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Any, ...]:
        """The arrays: inputs, targets and maybe weights; of two outputs a tuple for each."""
        columns: list[Any] = [X, self.targets, (WEIGHTS, WEIGHTS[::-1]) if self.outputs == 2 else WEIGHTS]
        return keras.tree.map_structure(lambda array: array[: self.samples], tuple(columns[: 2 + self.weighted]))

    @property
    def targets(self) -> Any:
        """The arrays of targets of all samples."""
        first = LABELS if self.classifies else TARGETS
        return (first, TARGETS[:, :2]) if self.outputs == 2 else first

    def data(self, in_scope: bool) -> dict[str, Any]:
        """The data as arguments of `fit`.

        Stock Keras is told how many batches a dataset has: where that is unknown, its step counter also counts the
        read that finds the end of the data, as TensorFlow runs ops that do not depend on each other at once.
        """
        batch = self.batch if in_scope else self.batch * self.accumulation * self.replicas
        if self.kind == "array":
            names = ("x", "y", "sample_weight")
            return dict(zip(names, self.columns, strict=False)) | {"batch_size": batch}
        if self.kind == "generator":
            return {"x": self.batches()}
        if self.kind == "py_dataset":
            return {"x": Batches(self)}
        dataset = tf.data.Dataset.from_tensor_slices(self.columns).batch(batch)
        if self.kind == "dataset" or not in_scope:
            return {"x": dataset}
        return {"x": dataset.filter(lambda *columns: True)}

    def batches(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Batches, epoch after epoch."""
        while True:
            for first in range(0, self.samples, self.batch):
                yield self.rows(slice(first, first + self.batch))

    def rows(self, rows: slice) -> tuple[Any, ...]:
        """Some samples of all columns."""
        return keras.tree.map_structure(lambda array: array[rows], self.columns)

    def model(self, in_scope: bool) -> keras.Model:
        """The compiled model."""
        inputs = hidden = keras.Input((WIDTH,))
        for name in self.layers:
            for layer in LAYERS[name]():
                hidden = layer(hidden)
        outputs = [layers.Dense(CLASSES, name="first")(hidden), layers.Dense(2, name="second")(hidden)][: self.outputs]
        model = keras.Model(inputs, outputs if self.outputs == 2 else outputs[0])
        first = keras.losses.SparseCategoricalCrossentropy(from_logits=True) if self.classifies else "mse"
        metric = "sparse_categorical_accuracy" if self.classifies else "mae"
        extra: dict[str, Any] = {"jit_compile": False, "metrics": [metric], "weighted_metrics": [metric], "loss": first}
        if self.outputs == 2:
            extra |= {"loss": [first, "mae"], "loss_weights": [0.7, 1.5]}
            extra |= {"metrics": [[metric], ["mse"]], "weighted_metrics": [[metric], ["mse"]]}
        if in_scope:
            del extra["jit_compile"]
            extra["steps_per_execution"] = self.steps_per_execution
        model.compile(self.scaled_optimizer(in_scope), **extra)
        if in_scope and self.accumulation > 1:
            model.set_gradient_accumulation_options(
                gradient_accumulation_steps_per_replica=self.accumulation, gradient_accumulation_reduction_method="mean"
            )
        return model

    def scaled_optimizer(self, in_scope: bool) -> keras.optimizers.Optimizer:
        """The optimizer; that of stock Keras steps further for each replica, whose gradients are added up."""
        optimizer = OPTIMIZERS[self.optimizer]()
        if not in_scope and self.replicas > 1:
            optimizer.learning_rate = float(optimizer.learning_rate.numpy()) * self.replicas
        return optimizer

    def run(self, in_scope: bool) -> tuple[Any, ...]:
        """Runs the program: fit, evaluate, predict; returns what it showed, and the number of weight updates."""
        keras.utils.set_random_seed(1)
        with ipu.ipu_strategy.IPUStrategy().scope() if in_scope else contextlib.nullcontext():
            model = self.model(in_scope)
        callbacks = [CALLBACKS[name]() for name in self.callbacks]
        arguments = {"epochs": 2, "verbose": 0} | self.data(in_scope) | self.arguments
        history = model.fit(**arguments, callbacks=callbacks)
        shown = [callback.losses for callback in callbacks if isinstance(callback, BatchLosses)]
        x, y = self.columns[:2]
        evaluated = model.evaluate(x, y, self.batch + 1, verbose=0, return_dict=True)
        predicted = model.predict(x, self.batch, verbose=0)
        logs = [self.compared(history.history), evaluated]
        return logs, history.epoch, shown, predicted, model.get_weights(), int(model.optimizer.iterations)

    def compared(self, logs: dict[str, Any]) -> dict[str, Any]:
        """Logs of `fit` without what depends on how it is split: means over batches, and the rate for replicas."""
        split = self.accumulation * self.replicas > 1
        return {name: values for name, values in logs.items() if not (split and name.endswith(SPLIT_DEPENDENT))}

    def check(self) -> None:
        """Fails unless both sides agree, and the device ran the steps of its side."""
        with device_work() as stock:
            wanted = self.run(False)
        with ipus(self.replicas), device_work() as work:
            found = self.run(True)
        assert stock.counts.executions == 0
        assert work.counts.steps >= found[-1] > 0
        assert_close(found, wanted)


class Batches(keras.utils.PyDataset):
    """A program's batches of an epoch."""

    def __init__(self, program: Fit) -> None:
        super().__init__()
        self._program = program

    def __len__(self) -> int:
        return -(-self._program.samples // self._program.batch)

    def __getitem__(self, index: int) -> tuple[np.ndarray, ...]:
        return self._program.rows(slice(index * self._program.batch, (index + 1) * self._program.batch))


class BatchLosses(keras.callbacks.Callback):
    """Keeps the loss that each step shows."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.losses.append(float((logs or {})["loss"]))


def assert_close(found: Any, wanted: Any) -> None:
    """Asserts equal numbers up to 1e-5, of the largest of an array."""
    keras.tree.assert_same_structure(found, wanted)
    for (path, got), expected in zip(keras.tree.flatten_with_path(found), keras.tree.flatten(wanted), strict=True):
        size = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * size, err_msg=f"of {path}")


@st.composite
def fits(draw: st.DrawFn) -> Fit:
    """Random programs."""
    kind = draw(st.sampled_from(["array", "dataset", "unknown", "generator", "py_dataset"]))
    samples, batch = draw(st.integers(3, SAMPLES)), draw(st.integers(1, 20))
    names = draw(st.lists(st.sampled_from(sorted(LAYERS)), max_size=2))
    if names == ["batch norm", "unit norm"]:
        names.reverse()  # of a single sample it would be the gradient of rsqrt at 0: see docs/differences.md
    program = Fit(
        layers=tuple(names),
        optimizer=draw(st.sampled_from(sorted(OPTIMIZERS))),
        classifies=draw(st.booleans()),
        kind=kind,
        samples=samples,
        batch=batch,
        weighted=draw(st.booleans()),
        # Stock Keras takes a whole execution from a source that goes on.
        steps_per_execution=1 if kind == "generator" else draw(st.integers(1, -(-samples // batch) + 2)),
        arguments={},
        outputs=draw(st.sampled_from([1, 1, 2])),
        callbacks=tuple(draw(st.lists(st.sampled_from(sorted(CALLBACKS)), max_size=2, unique=True))),
    )
    if "batches" in program.callbacks:
        program = dataclasses.replace(program, steps_per_execution=1)  # a callback is called once an execution
    if kind in ("array", "dataset", "unknown") and draw(st.booleans()):
        program = draw(split(program))
    return dataclasses.replace(program, arguments=draw(fit_arguments(program)))


@st.composite
def split(draw: st.DrawFn, program: Fit) -> Fit:
    """The program with replicas, micro-batches or both; without what depends on the size of a batch."""
    accumulation, replicas = draw(st.sampled_from([(1, 2), (2, 1), (3, 1), (2, 2), (1, 4), (4, 1)]))
    return dataclasses.replace(
        program,
        layers=tuple(name for name in program.layers if name != "batch norm"),
        optimizer=draw(st.sampled_from(["sgd", "momentum"])) if replicas > 1 else program.optimizer,
        batch=draw(st.integers(1, 8)),
        steps_per_execution=accumulation * draw(st.integers(1, 4)),
        accumulation=accumulation,
        replicas=replicas,
        callbacks=tuple(name for name in program.callbacks if name != "batches"),
    )


@st.composite
def fit_arguments(draw: st.DrawFn, program: Fit) -> dict[str, Any]:
    """Random arguments of `fit` that the program's data allows."""
    epochs = draw(st.integers(1, 4))
    arguments: dict[str, Any] = {"epochs": epochs, "initial_epoch": draw(st.integers(0, epochs - 1)), "shuffle": False}
    if program.kind == "array":
        batches = ["batch"] if program.accumulation * program.replicas == 1 else []
        arguments["shuffle"] = draw(st.sampled_from([True, False, *batches]))
        if program.samples >= 8:
            arguments["validation_split"] = draw(st.sampled_from([0.0, 0.2, 0.37]))
    elif draw(st.booleans()):
        arguments["validation_data"] = (X, program.targets)
        arguments["validation_batch_size"] = draw(st.integers(1, 30))
    if {"validation_split", "validation_data"} & {*arguments}:
        arguments["validation_freq"] = draw(st.sampled_from([1, 1, 2]))
    weighable = program.classifies and not program.weighted and program.outputs == 1 and program.kind != "generator"
    if weighable and draw(st.booleans()):
        arguments["class_weight"] = {0: 0.5, 1: 2.0, 2: 1.0}
    if program.kind == "generator":
        arguments["steps_per_epoch"] = draw(st.integers(1, -(-program.samples // program.batch) + 2))
    return arguments


def check_random_fits(cases: int, seed: int = 0) -> int:
    """Checks so many random programs, the same ones each time with a seed; returns how many disagree."""

    done, wrong = itertools.count(1), []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=cases,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate,),  # a program that is made smaller is a minute more for each attempt
    )
    @hypothesis.given(fits())
    def check(program: Fit) -> None:
        try:
            program.check()
        except Exception:
            with np.printoptions(threshold=3):
                print(f"Disagrees: {program}\n{traceback.format_exc()}", flush=True)
            wrong.append(program)
        keras.utils.clear_session()
        if (count := next(done)) % 10 == 0:
            print(f"{count} programs, {len(wrong)} disagree", flush=True)

    check()
    return len(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="which programs")
    given = parser.parse_args()
    wrong_count = check_random_fits(given.cases, given.seed)
    print(f"{given.cases} programs on {keras.backend.backend()}: {wrong_count} disagree")
    sys.exit(wrong_count > 0)
