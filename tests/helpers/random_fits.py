"""Random Keras programs on the device and on stock Keras: history, predictions, weights and optimizer have to agree.

    python -m tests.helpers.random_fits --cases 500        KERAS_BACKEND chooses the backend

A program is a model, data of one kind and any size, and arguments of `fit`. Sizes are odd on purpose: batches that do
not divide the data, executions that do not divide the batches, fewer samples than a batch.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
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

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """The arrays: inputs, targets and maybe weights."""
        arrays = (X, LABELS if self.classifies else TARGETS, WEIGHTS)[: 2 + self.weighted]
        return tuple(array[: self.samples] for array in arrays)

    def data(self, in_scope: bool) -> dict[str, Any]:
        """The data as arguments of `fit`.

        Stock Keras is told how many batches a dataset has: where that is unknown, its step counter also counts the
        read that finds the end of the data, as TensorFlow runs ops that do not depend on each other at once.
        """
        if self.kind == "array":
            names = ("x", "y", "sample_weight")
            return dict(zip(names, self.columns, strict=False)) | {"batch_size": self.batch}
        if self.kind == "generator":
            return {"x": self.batches()}
        if self.kind == "py_dataset":
            return {"x": Batches(self)}
        dataset = tf.data.Dataset.from_tensor_slices(self.columns).batch(self.batch)
        if self.kind == "dataset" or not in_scope:
            return {"x": dataset}
        return {"x": dataset.filter(lambda *columns: True)}

    def batches(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Batches, epoch after epoch."""
        while True:
            for first in range(0, self.samples, self.batch):
                yield tuple(array[first : first + self.batch] for array in self.columns)

    def run(self, in_scope: bool) -> tuple[Any, ...]:
        """Runs the program: fit, evaluate, predict; returns what it showed, and the number of weight updates."""
        keras.utils.set_random_seed(1)
        with ipu.ipu_strategy.IPUStrategy().scope() if in_scope else contextlib.nullcontext():
            hidden = [layer for name in self.layers for layer in LAYERS[name]()]
            model = keras.Sequential([keras.Input((WIDTH,)), *hidden, layers.Dense(CLASSES)])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True) if self.classifies else "mse"
            extra = {"steps_per_execution": self.steps_per_execution} if in_scope else {"jit_compile": False}
            metrics = ["sparse_categorical_accuracy"] if self.classifies else ["mae"]
            model.compile(OPTIMIZERS[self.optimizer](), loss, metrics=metrics, weighted_metrics=metrics, **extra)
        history = model.fit(**self.data(in_scope), epochs=2, verbose=0, **self.arguments).history
        x, y = self.columns[:2]
        evaluated = model.evaluate(x, y, self.batch + 1, verbose=0, return_dict=True)
        predicted = model.predict(x, self.batch, verbose=0)
        return history, evaluated, predicted, model.get_weights(), int(model.optimizer.iterations)

    def check(self) -> None:
        """Fails unless both sides agree, and the device ran the steps of its side."""
        with device_work() as stock:
            wanted = self.run(False)
        with ipus(1), device_work() as work:
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
        rows = slice(index * self._program.batch, (index + 1) * self._program.batch)
        return tuple(array[rows] for array in self._program.columns)


def assert_close(found: Any, wanted: Any) -> None:
    """Asserts equal numbers up to 1e-5, of the largest of an array."""
    keras.tree.assert_same_structure(found, wanted)
    for got, expected in zip(keras.tree.flatten(found), keras.tree.flatten(wanted), strict=True):
        size = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * size)


@st.composite
def fits(draw: st.DrawFn) -> Fit:
    """Random programs."""
    kind = draw(st.sampled_from(["array", "dataset", "unknown", "generator", "py_dataset"]))
    samples, batch = draw(st.integers(3, SAMPLES)), draw(st.integers(1, 20))
    weighted, classifies = draw(st.booleans()), draw(st.booleans())
    arguments: dict[str, Any] = {"shuffle": draw(st.booleans()) if kind == "array" else False}
    if kind == "array":
        arguments["shuffle"] = draw(st.sampled_from([True, False, "batch"]))
        if samples >= 8:
            arguments["validation_split"] = draw(st.sampled_from([0.0, 0.2, 0.37]))
        if classifies and not weighted and draw(st.booleans()):
            arguments["class_weight"] = {0: 0.5, 1: 2.0, 2: 1.0}
    elif draw(st.booleans()):
        arguments["validation_data"] = (X, LABELS if classifies else TARGETS)
        arguments["validation_batch_size"] = draw(st.integers(1, 30))
    batches = -(-samples // batch)
    if kind == "generator":
        arguments["steps_per_epoch"] = draw(st.integers(1, batches + 2))
    hidden = tuple(draw(st.lists(st.sampled_from(sorted(LAYERS)), max_size=2)))
    optimizer = draw(st.sampled_from(sorted(OPTIMIZERS)))
    # Stock Keras takes a whole execution from a source that goes on.
    steps = 1 if kind == "generator" else draw(st.integers(1, batches + 2))
    return Fit(hidden, optimizer, classifies, kind, samples, batch, weighted, steps, arguments)


def check_random_fits(cases: int) -> None:
    """Checks so many random programs, the same ones each time."""

    done = itertools.count(1)

    @hypothesis.settings(
        max_examples=cases,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate,),  # a program that is made smaller is a minute more for each attempt
    )
    @hypothesis.given(fits())
    def check(program: Fit) -> None:
        program.check()
        keras.utils.clear_session()
        if (count := next(done)) % 10 == 0:
            print(f"{count} programs agree", flush=True)

    check()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100, help="how many programs")
    count = parser.parse_args().cases
    check_random_fits(count)
    print(f"{count} programs on {keras.backend.backend()}: all agree")
