"""All kinds of Keras data: the device is fed the same batches in the same order, with the same sample weights."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ipu_tf.emulation import clear_session
from tests.helpers.keras_parity import (
    TIGHT,
    assert_same_numbers,
    configure,
    counted,
    integers,
    ipu_scope,
    numbers,
    on_side,
    sgd,
    weights_of,
)

# Keras makes arrays of TensorFlow variables in a way that NumPy 2 no longer likes.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

X = numbers(40, 5)
Y = numbers(40, 2, seed=2)
LABELS = integers(2, 40)
WEIGHTS = np.abs(numbers(40, seed=3))


def model(on_device: bool, loss: str = "mse", ipus: int = 1, **compiled: Any) -> keras.Model:
    """A dense model, the same at every call."""
    keras.utils.set_random_seed(1)

    def build() -> keras.Model:
        made = keras.Sequential([keras.Input((5,)), layers.Dense(4, "tanh"), layers.Dense(2, "softmax")])
        extra = {"steps_per_execution": 5, **compiled} if on_device else {"jit_compile": False}
        metrics = ["mae", "mse"] if loss == "mse" else ["accuracy", "sparse_categorical_crossentropy"]
        made.compile(sgd(), loss, metrics=metrics[:1], weighted_metrics=metrics[1:], **extra)
        return made

    return on_side(on_device, build, ipus)


def assert_same_fit(data: dict[str, Any], loss: str = "mse", steps: int = 20) -> None:
    """Fits both sides for two epochs and compares; `data` gives the arguments of `fit`, values made by calling."""
    sides = []
    for on_device in (False, True):
        made = model(on_device, loss)
        arguments = {name: value() if callable(value) else value for name, value in data.items()}
        with counted() as device:
            history = made.fit(epochs=2, verbose=0, **arguments).history
        assert device().steps == (steps if on_device else 0)
        sides.append((history, weights_of(made)))
    (wanted, wanted_weights), (found, found_weights) = sides
    assert_same_numbers(found, wanted, TIGHT)
    for got, expected in zip(found_weights.values(), wanted_weights.values(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=TIGHT, atol=TIGHT)


def dataset() -> tf.data.Dataset:
    """Ten batches of 4."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4, drop_remainder=True)


def generator() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of 4 without an end."""
    while True:
        for start in range(0, 40, 4):
            yield X[start : start + 4], Y[start : start + 4]


class Batches(keras.utils.PyDataset):
    """Ten batches of 4."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return X[index * 4 : index * 4 + 4], Y[index * 4 : index * 4 + 4]


DATA: dict[str, tuple[dict[str, Any], int]] = {
    "arrays_shuffled": ({"x": X, "y": Y, "batch_size": 4}, 20),
    "dataset": ({"x": dataset, "shuffle": False}, 20),
    "dataset_repeated": ({"x": lambda: dataset().repeat(), "steps_per_epoch": 5, "shuffle": False}, 10),
    "dataset_prefetched": (
        {"x": lambda: dataset().map(lambda x, y: (x * 2.0, y)).prefetch(2), "shuffle": False},
        20,
    ),
    "generator": ({"x": generator, "steps_per_epoch": 10, "shuffle": False}, 20),
    "py_dataset": ({"x": Batches, "shuffle": False}, 20),
    "validation_split": ({"x": X, "y": Y, "batch_size": 4, "validation_split": 0.5}, 10 + 10),
    "validation_data": ({"x": X, "y": Y, "batch_size": 4, "validation_data": dataset, "validation_freq": 2}, 20 + 10),
    "sample_weight": ({"x": X, "y": Y, "batch_size": 4, "sample_weight": WEIGHTS}, 20),
    "sample_weight_in_dataset": (
        {"x": lambda: tf.data.Dataset.from_tensor_slices((X, Y, WEIGHTS)).batch(4, True), "shuffle": False},
        20,
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_data_feeds_the_device_as_stock_keras(name: str) -> None:
    data, steps = DATA[name]
    assert_same_fit(data, steps=steps)


def test_class_weights() -> None:
    data = {"x": X, "y": LABELS, "batch_size": 4, "class_weight": {0: 0.3, 1: 2.0}}
    assert_same_fit(data, "sparse_categorical_crossentropy")


def test_methods_on_single_batches() -> None:
    def calls(made: keras.Model) -> list[Any]:
        trained = [made.train_on_batch(X[:4], Y[:4], return_dict=True) for _ in range(3)]
        tested = made.test_on_batch(X[4:8], Y[4:8], return_dict=True)
        return [*trained, tested, {"predicted": made.predict_on_batch(X[:4])}]

    wanted = calls(model(False))
    on_device = model(True, steps_per_execution=1)
    with counted() as device:
        found = calls(on_device)
    assert (device().programs, device().steps) == (3, 5)
    for got, expected in zip(found, wanted, strict=True):
        assert_same_numbers(got, expected, TIGHT)


def test_64_bit_data_is_cast_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    clear_session()
    caplog.set_level(logging.WARNING, "ipu_tf")
    loss = "sparse_categorical_crossentropy"
    wide = tf.data.Dataset.from_tensor_slices((X.astype(np.float64), LABELS.astype(np.int64))).batch(4, True)
    assert_same_fit({"x": wide, "shuffle": False}, loss)
    model(True, loss).evaluate(wide, verbose=0)
    said = [record.getMessage() for record in caplog.records if "no " in record.getMessage()]
    assert len(said) == 2
    assert "float64" in said[0] and "float32" in said[0]
    assert "int64" in said[1] and "int32" in said[1]


WIDE: dict[str, Callable[[], Any]] = {
    "arrays": lambda: {"x": X, "y": LABELS.astype(np.int64), "batch_size": 4},
    "arrays with a rest": lambda: {"x": X[:38], "y": LABELS[:38].astype(np.int64), "batch_size": 4},
    "dataset": lambda: {"x": tf.data.Dataset.from_tensor_slices((X, LABELS.astype(np.int64))).batch(4)},
    "dataset with a rest": lambda: {"x": tf.data.Dataset.from_tensor_slices((X, LABELS.astype(np.int64))).batch(12)},
    "generator": lambda: {"x": ((x, LABELS[:4].astype(np.int64)) for x, _ in generator()), "steps_per_epoch": 5},
}


@pytest.mark.parametrize("name", WIDE)
def test_the_users_code_sees_64_bit_data_in_its_dtype(name: str) -> None:
    """Labels are of 64 bits if NumPy makes them, and so is what `tf.argmax` gives."""
    seen = []

    def hits(y_true: Any, y_pred: Any) -> Any:
        seen.append(y_true.dtype)
        return tf.cast(tf.equal(tf.argmax(y_pred, -1), tf.reshape(y_true, [-1])), tf.float32)

    sides = []
    for on_device in (False, True):
        made = model(on_device, "sparse_categorical_crossentropy")
        made.compile("sgd", "sparse_categorical_crossentropy", metrics=[hits], steps_per_execution=5)
        with counted() as device:
            sides.append(made.fit(**WIDE[name](), epochs=1, verbose=0, shuffle=False).history)
        assert (device().steps > 0) == on_device
    assert_same_numbers(sides[1], sides[0], TIGHT)
    assert set(seen) == {tf.int64}


@pytest.mark.parametrize("whole", [True, False])
def test_a_dataset_with_none_for_targets(whole: bool) -> None:
    """Only the losses that layers add are trained then."""

    def losses(on_device: bool) -> list[float]:
        keras.utils.set_random_seed(1)
        with ipu_scope() if on_device else contextlib.nullcontext():
            made = keras.Sequential([keras.Input(X.shape[1:]), keras.layers.Dense(4, activity_regularizer="l2")])
            made.compile("sgd")
        data = tf.data.Dataset.from_tensor_slices(X).batch(4 if whole else 12).map(lambda x: (x, None))
        return made.fit(data, epochs=2, verbose=0, shuffle=False).history["loss"]

    configure()
    wanted = losses(False)
    with counted() as device:
        found = losses(True)
    assert device().steps == (20 if whole else 8)
    np.testing.assert_allclose(found, wanted, rtol=TIGHT)


@pytest.mark.parametrize("saved_on_device", [True, False])
def test_saved_models_load_on_either_side(saved_on_device: bool, tmp_path: Path) -> None:
    trained = model(saved_on_device)
    trained.fit(X, Y, batch_size=4, verbose=0)
    trained.save(tmp_path / "model.keras")
    trained.save_weights(tmp_path / "model.weights.h5")
    other = model(not saved_on_device)
    with other.distribute_strategy.scope():
        other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "model.weights.h5")
    configure()
    with ipu_scope():
        loaded = keras.models.load_model(tmp_path / "model.keras")
    with counted() as device:
        loaded.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
        assert device().steps == 10
    wanted = weights_of(trained)
    for got, expected in zip(weights_of(other).values(), wanted.values(), strict=True):
        np.testing.assert_array_equal(got, expected)
    # Loading brought the momenta too: both go on the same way.
    trained.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
    for got, expected in zip(weights_of(loaded).values(), weights_of(trained).values(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=TIGHT, atol=TIGHT)


def test_a_split_step_says_what_its_batch_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ipu_tf")
    ours = model(True, ipus=2, steps_per_execution=5)
    ours.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=5)
    for _ in range(2):
        ours.fit(X, Y, batch_size=4, verbose=0)
    ours.evaluate(X, Y, batch_size=4, verbose=0)
    told = [record.getMessage() for record in caplog.records if "effective" in record.getMessage()]
    assert told == [
        f"ipu_tf: {ours.name}: Training is split into 5 batches an update on each of 2 replicas, "
        "your effective batch size is 40."
    ]
