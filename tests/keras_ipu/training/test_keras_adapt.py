"""In the scope, layers are adapted to arrays and datasets, and Python loops over datasets, as with stock Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

NUMBERS = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
TEXTS = np.array([f"the cat {index % 7} sat" for index in range(50)])
IDS = np.arange(50) % 5


def batches(data: Any) -> tf.data.Dataset:
    """Batches of which the last is smaller."""
    return tf.data.Dataset.from_tensor_slices(data).batch(16)


def adapted(make: Callable[[], keras.Layer], data: Any, of: Any) -> Callable[[], list[np.ndarray]]:
    """Returns a program that adapts a layer to data, and returns its vocabulary and what it makes of something."""

    def run() -> list[np.ndarray]:
        layer = make()
        layer.adapt(data)
        vocabulary = [np.array(layer.get_vocabulary())] if hasattr(layer, "get_vocabulary") else []
        return [*vocabulary, np.asarray(layer(of))]

    return run


def feature_space() -> list[np.ndarray]:
    space = keras.utils.FeatureSpace(
        {"a": "float_normalized", "b": "string_categorical", "c": "integer_categorical"},
        crosses=[("b", "c")],
        crossing_dim=8,
        output_mode="concat",
    )
    data = batches({"a": NUMBERS[:, 0], "b": TEXTS, "c": IDS})
    space.adapt(data)
    return [np.asarray(batch) for batch in data.map(space)]


def loops() -> list[np.ndarray]:
    """Ways to loop over a dataset in Python."""
    data = batches((NUMBERS, IDS))
    seen = [x.numpy() for x, _ in data]
    seen += [next(iter(data))[0].numpy()]
    iterator = iter(data)
    seen += [next(iterator)[0].numpy(), iterator.get_next()[0].numpy()]
    seen += [iterator.get_next_as_optional().get_value()[1].numpy()]
    seen += [y.numpy() for _, (_, y) in zip(range(2), data, strict=False)]
    return seen


TEXT, ROWS = tf.constant(TEXTS[:4]), NUMBERS[:4]
DATA: dict[str, Callable[[Any], Any]] = {"arrays": lambda data: data, "dataset": batches}
PROGRAMS: dict[str, Callable[[], list[np.ndarray]]] = {
    f"{name}, {kind}": adapted(make, of_kind(data), given)
    for kind, of_kind in DATA.items()
    for name, make, data, given in [
        ("Normalization", layers.Normalization, NUMBERS, ROWS),
        ("Discretization", lambda: layers.Discretization(num_bins=4), NUMBERS, ROWS),
        ("TextVectorization", lambda: layers.TextVectorization(output_sequence_length=5), TEXTS, TEXT),
        ("tf-idf", lambda: layers.TextVectorization(output_mode="tf_idf", ngrams=2), TEXTS, TEXT),
        ("StringLookup", layers.StringLookup, TEXTS, TEXT),
        ("IntegerLookup", layers.IntegerLookup, IDS, IDS[:4]),
    ]
} | {"FeatureSpace": feature_space, "loops": loops}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_host_computes_what_stock_keras_does(name: str) -> None:
    wanted = PROGRAMS[name]()
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = PROGRAMS[name]()
    assert work.counts.executions == 0
    for got, expected in zip(found, wanted, strict=True):
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(got, expected)


def test_python_and_programs_take_elements_of_one_iterator() -> None:
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        iterator = iter(tf.data.Dataset.range(9).map(lambda number: tf.cast(number, tf.float32)))
        first = float(next(iterator))
        taken = float(strategy.run(tf.function(lambda each: next(each) + next(each)), args=(iterator,)))
        assert (first, taken, [float(number) for number in iterator]) == (0.0, 3.0, [3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    assert work.counts.executions == 1


def test_an_adapted_layer_is_part_of_a_model_on_the_device() -> None:
    def trained() -> list[np.ndarray]:
        keras.utils.set_random_seed(1)
        normalization = layers.Normalization()
        normalization.adapt(batches(NUMBERS))
        model = keras.Sequential([keras.Input((3,)), normalization, layers.Dense(2)])
        model.compile("sgd", "mse")
        model.fit(NUMBERS, NUMBERS[:, :2], 16, verbose=0, shuffle=False)
        weights: list[np.ndarray] = model.get_weights()
        return weights

    wanted = trained()
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = trained()
    assert work.counts.steps == 4
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
