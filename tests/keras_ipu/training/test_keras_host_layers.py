"""Models that begin with look-ups of strings and numbers train, evaluate and predict as in stock Keras."""

from __future__ import annotations

import logging
import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ipu_tf.lowering.stablehlo.errors import LoweringError
from tests.helpers.keras_parity import assert_close, configure, counted, integers, ipu_scope, numbers

SAMPLES, BATCH = 21, 8
WORDS = np.array(["ash", "birch", "cedar", "elm"])
NAMES = WORDS[integers(4, SAMPLES)][:, None]
TEXTS = np.array([" ".join(WORDS[row]) for row in integers(4, SAMPLES, 5)])[:, None]
NUMBERS = integers(5, SAMPLES, 1).astype(np.int64)
FLOATS = numbers(SAMPLES, 3)
TARGETS = integers(2, SAMPLES, 1).astype(np.float32)

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="Keras on JAX has no strings")


def _table() -> Any:
    """Three inputs: a look-up of strings, one of numbers, and floats that the device normalizes."""
    inputs = [keras.Input((1,), dtype="string"), keras.Input((1,), dtype="int64"), keras.Input((3,))]
    lookups = [layers.StringLookup(output_mode="multi_hot"), layers.IntegerLookup(), layers.Normalization()]
    for lookup, values in zip(lookups, (NAMES, NUMBERS, FLOATS), strict=True):
        lookup.adapt(values)
    name, number, floats = (lookup(each) for lookup, each in zip(lookups, inputs, strict=True))
    hidden = layers.concatenate([name, layers.Flatten()(layers.Embedding(8, 2)(number)), floats])
    hidden = layers.Dropout(0.3)(layers.Dense(6, "tanh")(hidden))
    return keras.Model(inputs, layers.Dense(1, "sigmoid")(hidden)), [tf.constant(NAMES), NUMBERS, FLOATS]


def _texts() -> Any:
    """A `Sequential` from texts on, whose padding is masked."""
    vectorize = layers.TextVectorization(output_sequence_length=7)
    vectorize.adapt(TEXTS[:, 0])
    stack = [vectorize, layers.Embedding(7, 3, mask_zero=True), layers.GlobalAveragePooling1D()]
    inputs = keras.Input((1,), dtype="string")
    return keras.Sequential([inputs, *stack, layers.Dense(1, "sigmoid")]), tf.constant(TEXTS)


def _nested() -> Any:
    """A trained model behind a model of hashed crossings."""
    pair = [keras.Input((1,), dtype="string"), keras.Input((1,), dtype="string")]
    crossed = keras.Model(pair, layers.HashedCrossing(5, output_mode="one_hot")(tuple(pair)))
    inputs = [keras.Input((1,), dtype="string"), keras.Input((1,), dtype="string")]
    return keras.Model(inputs, layers.Dense(1, "sigmoid")(crossed(inputs))), [tf.constant(NAMES), tf.constant(TEXTS)]


def _shown(make: Any, accumulation: int, weights: pathlib.Path) -> Any:
    """History, results and weights: of arrays with a remainder and single batches, or of a dataset of full batches."""
    keras.utils.set_random_seed(1)
    model, x = make()
    model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", metrics=["accuracy"])
    if make is _table:
        history = model.fit(x, TARGETS, BATCH, epochs=2, shuffle=False, verbose=0).history
        rows = [part[:BATCH] for part in x]
        shown = [history, model.evaluate(x, TARGETS, BATCH, verbose=0), model.train_on_batch(rows, TARGETS[:BATCH])]
        return [*shown, model.predict_on_batch(rows), model.get_weights()]
    batch = BATCH * accumulation
    if hasattr(model, "set_gradient_accumulation_options") and accumulation > 1:
        model.set_gradient_accumulation_options(accumulation, gradient_accumulation_reduction_method="mean")
        model.steps_per_execution, batch = accumulation, BATCH
    columns = (tuple(x) if isinstance(x, list) else x, TARGETS)
    pairs = tf.data.Dataset.from_tensor_slices(columns).take(2 * BATCH).batch(batch)
    model.fit(pairs, epochs=2, shuffle=False, verbose=0)
    model.save_weights(weights)
    model.load_weights(weights)
    return [model.predict(pairs.map(lambda x, y: (x,)), verbose=0), model.get_weights()]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras reads weights of a file
@pytest.mark.parametrize(("make", "accumulation"), [(_table, 1), (_texts, 1), (_nested, 2)])
def test_lookups_at_the_inputs(
    make: Any, accumulation: int, caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path
) -> None:
    configure()
    weights = tmp_path / "model.weights.h5"
    wanted = _shown(make, accumulation, weights)
    with ipu_scope(), counted() as counts, caplog.at_level(logging.WARNING, "ipu_tf"):
        found = _shown(make, accumulation, weights)
    assert counts().steps >= 6
    assert caplog.text.count("run on the host, batch by batch") == 1
    for ours, stock in zip(keras.tree.flatten(found), keras.tree.flatten(wanted), strict=True):
        assert_close(np.asarray(ours, np.float32), np.asarray(stock, np.float32), 1e-5)


def test_own_train_step_is_refused() -> None:
    class Own(keras.Model):
        def train_step(self, data: Any) -> Any:
            return super().train_step(data)

    configure()
    with ipu_scope():
        inputs = keras.Input((1,), dtype="string")
        lookup = layers.StringLookup(vocabulary=[*WORDS], output_mode="one_hot")
        model = Own(inputs, layers.Dense(1)(lookup(inputs)))
        model.compile("sgd", "mse")
        with pytest.raises(LoweringError, match="numbers and booleans"):
            model.fit(tf.constant(NAMES), TARGETS, verbose=0)


class _Counted(layers.StringLookup):
    """Counts how often Python calls it."""

    calls = 0

    def call(self, inputs: Any) -> Any:
        type(self).calls += 1
        return super().call(inputs)


def _looked_up(epochs: int) -> Any:
    """History, predictions, and those after another vocabulary; with the calls of the look-up after the first fit."""
    keras.utils.set_random_seed(1)
    lookup = _Counted(vocabulary=[*WORDS], output_mode="one_hot")
    inputs = keras.Input((1,), dtype="string")
    model = keras.Model(inputs, layers.Dense(1)(lookup(inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    _Counted.calls = 0
    x, data = tf.constant(NAMES), tf.data.Dataset.from_tensor_slices((NAMES, TARGETS)).batch(BATCH)
    arguments: dict[str, Any] = {"epochs": epochs, "shuffle": False, "verbose": 0}
    histories = [
        model.fit(data, validation_data=(x, TARGETS), **arguments).history,
        model.fit(x, TARGETS, BATCH, **arguments).history,
    ]
    calls, before = _Counted.calls, model.predict(x, verbose=0)
    lookup.set_vocabulary([*WORDS[::-1]])
    return [histories, before], model.predict(x, verbose=0), calls, model(x)


def test_layers_are_traced_once_and_again_after_adapt() -> None:
    configure()
    wanted = _looked_up(3)[0]
    with ipu_scope():
        found, after, calls, expected = _looked_up(3)
    for ours, stock in zip(keras.tree.flatten(found), keras.tree.flatten(wanted), strict=True):
        assert_close(np.asarray(ours), np.asarray(stock), 1e-5)
    assert calls <= 2  # for batches of a known size and of any
    assert not np.allclose(after, found[-1])
    assert_close(after, np.asarray(expected), 1e-5)
