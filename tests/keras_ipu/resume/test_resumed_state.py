"""What a resumed run needs beside weights: callbacks of subclasses, Keras's own seed, the epochs that a dataset saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_ipu
from tests.helpers.resumed_runs import Batches, Error, Setting, X, Y, made
from tests.helpers.some_ipus import ipus


class Patient(keras.callbacks.EarlyStopping):
    """A class of a user's, of which all attributes are saved."""


def epochs_run(folder: Path, epochs: int, callback: keras.callbacks.Callback) -> int:
    """How many epochs a run has until its end, or until a callback finds that the loss stays as it is."""
    keras.utils.set_random_seed(1)
    with ipus(1) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        resume = keras_ipu.callbacks.ExactResume(folder)
        told = model.fit(X, Y, epochs=epochs, verbose=0, shuffle=False, callbacks=[callback, resume])
    return len(told.history["loss"])


@pytest.mark.parametrize("kind", [keras.callbacks.EarlyStopping, Patient])
@pytest.mark.parametrize("again", [False, True])
def test_a_callback_goes_on_with_the_improvement_that_counts(tmp_path: Path, kind: Any, again: bool) -> None:
    """Also where the same object is given to the `fit` that goes on."""
    new = lambda: kind("loss", min_delta=0.01, patience=3)  # noqa: E731
    whole = epochs_run(tmp_path / "whole", 12, new())
    first = new()
    assert epochs_run(tmp_path / "run", 2, first) == 2
    assert epochs_run(tmp_path / "run", 12, first if again else new()) == whole == 4
    with pytest.raises(Error, match=f"arguments of callback 0, {kind.__name__}"):
        epochs_run(tmp_path / "run", 12, kind("loss", min_delta=0.02, patience=3))


class Noise(keras.layers.Layer):
    """Adds random numbers that are given no seed."""

    def call(self, x: Any, training: bool | None = None) -> Any:
        return x + keras.random.normal((4, 4)) if training else x


def noisy_weights(folder: Path, epochs: int, drawn: bool) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    with ipus(1) as strategy, strategy.scope():
        if drawn:
            keras.random.normal((1,))
        model = keras.Sequential([keras.Input((4,)), Noise(), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        resume = keras_ipu.callbacks.ExactResume(folder)
        model.fit(X, Y, batch_size=4, epochs=epochs, shuffle=False, verbose=0, callbacks=[resume])
    return [np.array(weight) for weight in model.get_weights()]


@pytest.mark.parametrize("drawn", [True, False])
def test_random_numbers_without_a_seed_go_on(tmp_path: Path, drawn: bool) -> None:
    """Whether there were such numbers before `fit`, or its first step draws the first."""
    whole = noisy_weights(tmp_path / "whole", 4, drawn)
    noisy_weights(tmp_path / "run", 2, drawn)
    for mine, wanted in zip(noisy_weights(tmp_path / "run", 4, drawn), whole, strict=True):
        np.testing.assert_array_equal(mine, wanted)


def weights_from(folder: Path, first: int, epochs: int) -> list[bytes]:
    with ipus(1) as strategy, strategy.scope():
        model = made(Setting())
        resume = keras_ipu.callbacks.ExactResume(folder)
        model.fit(Batches(), initial_epoch=first, epochs=epochs, shuffle=False, verbose=0, callbacks=[resume])
    return [weight.tobytes() for weight in model.get_weights()]


def test_a_dataset_is_told_of_the_epochs_that_it_saw(tmp_path: Path) -> None:
    """Not of those before the first one."""
    whole = weights_from(tmp_path / "whole", 2, 6)
    weights_from(tmp_path / "run", 2, 4)
    with pytest.raises(Error, match="initial_epoch: 2 in the checkpoint, None here"):
        weights_from(tmp_path / "run", 0, 6)
    assert weights_from(tmp_path / "run", 2, 6) == whole
