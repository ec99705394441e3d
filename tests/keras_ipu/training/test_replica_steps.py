"""Steps that a call is told to run count the batches of all replicas: as many samples as with one. On both backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.device_counts import device_work
from tests.helpers.random_fits import assert_close
from tests.helpers.some_ipus import ipus

BATCH, STEPS = 4, 4
X = np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32)


def generated() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches without an end."""
    while True:
        for first in range(0, len(X), BATCH):
            yield X[first : first + BATCH], X[first : first + BATCH]


DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {"x": X, "y": X, "batch_size": BATCH},
    "an endless dataset": lambda: {"x": tf.data.Dataset.from_tensor_slices((X, X)).repeat().batch(BATCH, True)},
    "a generator": lambda: {"x": generated()},
}


def shown(data: Callable[[], dict[str, Any]], steps_per_execution: int) -> list[Any]:
    """Returns what a model shows of `STEPS` steps that its data has more of. Training does not change it."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.0), "mse", steps_per_execution=steps_per_execution)
    history = model.fit(**data(), epochs=2, steps_per_epoch=STEPS, shuffle=False, verbose=0).history
    inputs = {name: value for name, value in data().items() if name != "y"}
    evaluated = model.evaluate(**data(), steps=STEPS, verbose=0)
    return [history, evaluated, model.predict(**inputs, steps=STEPS, verbose=0)]


@pytest.mark.parametrize("steps_per_execution", [1, 4])
@pytest.mark.parametrize("name", DATA)
def test_replicas_take_as_many_samples_as_one(name: str, steps_per_execution: int) -> None:
    wanted = shown(DATA[name], 1)
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        found = shown(DATA[name], steps_per_execution)
    assert work.counts.steps == 2 * STEPS  # of each replica: two epochs, `evaluate` and `predict`
    assert len(found[-1]) == STEPS * BATCH
    assert_close(found, wanted)
