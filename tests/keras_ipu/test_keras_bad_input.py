"""What `fit` cannot do is refused before anything trains, weights and optimizer untouched; on both backends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

BATCH, BATCHES, WIDTH = 4, 12, 20
X = np.random.default_rng(0).normal(size=(BATCH * BATCHES, WIDTH)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 5, BATCH * BATCHES).astype(np.int32)
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def fit(x: Any = X, y: Any = Y, batch: int | None = BATCH, **told: Any) -> Callable[[keras.Model], Any]:
    """Fits a model to this."""
    return lambda model: model.fit(x, y, batch, verbose=0, **told)


def fit_to(dataset: tf.data.Dataset, **told: Any) -> Callable[[keras.Model], Any]:
    return fit(dataset, None, None, shuffle=False, **told)


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def accumulate(count: int) -> Callable[[keras.Model], Any]:
    def run(model: keras.Model) -> None:
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=count)
        fit()(model)

    return run


def pipeline_without_a_count(model: keras.Model) -> None:
    model.set_pipeline_stage_assignment([0, 1])
    fit()(model)


def eagerly(model: keras.Model) -> None:
    model.run_eagerly = True
    fit()(model)


def ragged() -> tf.data.Dataset:
    rows = tf.ragged.constant([[1.0], [2.0, 3.0]])
    return tf.data.Dataset.from_tensor_slices((rows, [0, 1])).batch(2, drop_remainder=True)


@dataclasses.dataclass(frozen=True)
class Row:
    """One thing that cannot be.

    Attributes:
        name: of the test.
        run: asks for it.
        error: what is raised.
        text: a pattern of its text.
        ipus: of the device.
        steps: of an execution.
    """

    name: str
    run: Callable[[keras.Model], Any]
    error: type[BaseException]
    text: str
    ipus: int = 1
    steps: int = 1


ROWS = [
    Row("steps of an execution", fit(), ValueError, r"\(5\) must be a divisor of the number of batches \(12\)", 1, 5),
    Row(
        "steps of an execution on each of two replicas",
        fit(),
        ValueError,
        r"\(4\) must be a divisor of the number of batches \(6\) in the dataset provided to this replica",
        2,
        4,
    ),
    Row(
        "too little data for the replicas",
        fit(X[:8], Y[:8]),
        ValueError,
        "contains 2 items, but all 4 replicas are requested to run 1 steps each.* at least 4 items",
        4,
    ),
    Row(
        "too little data for the epoch",
        fit_to(dataset().batch(BATCH, drop_remainder=True), steps_per_epoch=13),
        ValueError,
        r"does not have enough data.* at least 13 batches \(currently it can only generate 12 batches\)",
    ),
    Row(
        "accumulation",
        accumulate(3),
        RuntimeError,
        r"\(set to 4\) is not divisible by `gradient_accumulation_steps_per_replica` \(3\)",
        1,
        4,
    ),
    Row(
        "a pipeline that is not told how many micro-batches",
        pipeline_without_a_count,
        ValueError,
        r"is pipelined, however `gradient_accumulation_steps_per_replica` has not been set",
        2,
        4,
    ),
    Row("eagerly", eagerly, RuntimeError, "cannot run eagerly.* Set `run_eagerly=False`"),
    Row("a partial batch", fit(X[:-1], Y[:-1]), ValueError, r"has a partial batch.*\(currently set to 4\)"),
    Row("no batch", fit_to(dataset().batch(BATCH, True).filter(lambda x, y: False)), ValueError, "a non-empty array"),
    Row("batches of unknown size", fit_to(dataset().batch(BATCH)), ValueError, "which is not fully defined"),
    Row(
        "data without an end",
        fit_to(dataset().batch(BATCH, drop_remainder=True).repeat()),
        ValueError,
        "infinite dataset, you must specify the number of steps",
    ),
    Row(
        "ragged data", fit_to(ragged()), ValueError, "is fed dense tensors. Received: a dataset with elements of Ragged"
    ),
    Row("samples of another width", fit(X[:, :-1]), ValueError, r"(?i)incompatible.*|expected.*20.*"),
    Row("as many targets as there are not", fit(X, Y[:-4]), ValueError, "(?i)cardinality|same number of samples"),
]


def values(model: keras.Model) -> Iterator[np.ndarray]:
    return (variable.numpy() for variable in (*model.variables, *model.optimizer.variables))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_nothing_trains(row: Row) -> None:
    with ipus(row.ipus) as strategy, strategy.scope(), device_work() as work:
        hidden = keras.layers.Dense(6, "tanh")
        model = keras.Sequential([keras.Input((WIDTH,)), hidden, keras.layers.Dense(5)])
        model.compile(keras.optimizers.Adam(0.1), LOSS, steps_per_execution=row.steps)
        model.optimizer.build(model.trainable_variables)
        before = list(values(model))
        with pytest.raises(row.error, match=row.text):
            row.run(model)
    assert work.counts.executions == 0
    for now, then in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(now, then)
