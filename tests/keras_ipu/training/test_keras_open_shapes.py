"""Datasets of Keras's utilities, whose specs leave dimensions open, train in the scope as with stock Keras."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

TEXTS = np.array([f"the cat {index % 7} sat" for index in range(50)])
LABELS = (np.arange(50) % 2).astype(np.float32)[:, None]
WORDS = 20

Program = Callable[[Path], tuple[keras.Model, tf.data.Dataset]]


def images(folder: Path) -> tuple[keras.Model, tf.data.Dataset]:
    """Pictures of a folder, the last batch smaller."""
    for name in "ab":
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(9):
            picture = np.random.default_rng(number).integers(0, 255, (8, 8, 3), dtype=np.uint8)
            (folder / name / f"{number}.png").write_bytes(tf.io.encode_png(picture).numpy())
    data = keras.utils.image_dataset_from_directory(
        folder, image_size=(8, 8), batch_size=4, shuffle=False, verbose=False
    )
    parts = [layers.Rescaling(1 / 255), layers.Conv2D(2, 3), layers.Flatten(), layers.Dense(1)]
    return keras.Sequential([keras.Input((8, 8, 3)), *parts]), data


def windows(folder: Path) -> tuple[keras.Model, tf.data.Dataset]:
    """Windows of a time series."""
    series = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    data = keras.utils.timeseries_dataset_from_array(series[:-5], series[5:, :1], sequence_length=5, batch_size=16)
    return keras.Sequential([keras.Input((5, 3)), layers.Flatten(), layers.Dense(1)]), data


def texts(length: int | None) -> Program:
    """Texts that a dataset turns into numbers; without a length, as many as the longest text of a batch has."""

    def program(folder: Path) -> tuple[keras.Model, tf.data.Dataset]:
        words = layers.TextVectorization(WORDS, output_sequence_length=length)
        words.adapt(TEXTS)
        data = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(16).map(lambda x, y: (words(x), y))
        return keras.Sequential([layers.Embedding(WORDS, 4), layers.GlobalAveragePooling1D(), layers.Dense(1)]), data

    return program


def features(folder: Path) -> tuple[keras.Model, tf.data.Dataset]:
    """Columns of a table that a `FeatureSpace` turns into numbers."""
    space = keras.utils.FeatureSpace({"a": "float_normalized", "b": "string_categorical"}, output_mode="concat")
    columns = {"a": np.arange(50, dtype=np.float32), "b": TEXTS}
    data = tf.data.Dataset.from_tensor_slices((columns, LABELS)).batch(16)
    space.adapt(data.map(lambda x, y: x))
    return keras.Sequential([layers.Dense(1)]), data.map(lambda x, y: (space(x), y))


PROGRAMS: dict[str, Program] = {
    "image_dataset_from_directory": images,
    "timeseries_dataset_from_array": windows,
    "TextVectorization to 6 words": texts(6),
    "TextVectorization": texts(None),
    "FeatureSpace": features,
}


def trained(program: Program, folder: Path) -> list[Any]:
    """Fits, evaluates and predicts; returns what it showed."""
    keras.utils.set_random_seed(1)
    model, data = program(folder)
    model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    history = model.fit(data, epochs=2, shuffle=False, verbose=0).history
    shown = [history["loss"], history["mae"], model.evaluate(data, verbose=0), model.predict(data, verbose=0)]
    return [*shown, *model.get_weights(), int(model.optimizer.iterations)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_first_batches_decide_on_open_dimensions(name: str, tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    wanted = trained(PROGRAMS[name], tmp_path)
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = trained(PROGRAMS[name], tmp_path)
    assert work.counts.steps == 2 * found[-1] > 0  # two epochs of training, one of each of the others
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_lengths_that_change_from_batch_to_batch_are_refused_with_both_shapes() -> None:
    lengths = tf.data.Dataset.from_tensor_slices([5, 3]).map(lambda n: (tf.ones([4, n]), tf.ones([4, 1])))
    with ipus(1) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((None,)), layers.Reshape((-1, 1)), layers.GlobalAveragePooling1D()])
        model.compile(loss="mse")
        with pytest.raises(ValueError, match=r"must have the shape \(4, 5\).* Received: shape \(4, 3\)\. Pad the data"):
            model.evaluate(lengths, verbose=0)


def test_a_crop_at_a_place_that_is_drawn_trains_as_in_stock_keras() -> None:
    pictures, targets = np.random.default_rng(0).random((8, 8, 8, 1)).astype(np.float32), np.ones((8, 1), np.float32)

    def trained() -> list[float]:
        keras.utils.set_random_seed(3)
        crop, mean = keras.layers.RandomCrop(5, 6, seed=1), keras.layers.GlobalAveragePooling2D()
        model = keras.Sequential([keras.Input((8, 8, 1)), crop, mean, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return list(model.fit(pictures, targets, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"])

    wanted = trained()
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = trained()
    assert work.counts.steps == 4
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
