"""TensorFlow functions on the host with weights of a strategy's scope are reported, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_tf.emulation import clear_session
from tests.helpers.some_ipus import ipus

X, Y = np.ones((16, 8), np.float32), np.zeros(16, np.int32)
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture(autouse=True)
def nothing_told_yet() -> Iterator[None]:
    clear_session()
    yield


def made() -> Any:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(3)])
    model.compile("adam", LOSS, metrics=["accuracy"])
    return model


def test_a_function_with_a_models_weights_is_told_once_by_name(caplog: pytest.LogCaptureFixture) -> None:
    with ipus(1) as strategy, strategy.scope():
        model = made()
        generate_step = tf.function(model.call)
        for samples in (4, 4, 8):
            generate_step(tf.constant(X[:samples]))

    @tf.function
    def loss() -> Any:
        return tf.while_loop(
            lambda i, x: i < 2, lambda i, x: (i + 1, x + tf.reduce_sum(model(x))), [0, tf.constant(X)]
        )[1]

    loss()
    told = [record.getMessage() for record in caplog.records if "on TensorFlow's CPU" in record.getMessage()]
    assert [text.split("`")[1] for text in told] == ["call", "loss"]
    assert all("strategy.run" in text and f'File "{__file__}", line ' in text for text in told)


def test_functions_of_one_name_are_all_told(caplog: pytest.LogCaptureFixture) -> None:
    with ipus(1) as strategy, strategy.scope():
        model, other = made(), made()
        tf.function(model.call)(tf.constant(X))
        tf.function(other.call)(tf.constant(X))
        tf.function(lambda x, kernel: x @ kernel)(tf.constant(X), model.layers[0].kernel.value)
        tf.function(lambda x: 2.0 * model(x))(tf.constant(X))
    assert caplog.text.count("on TensorFlow's CPU") == 4


def _trains(strategy: Any, model: Any) -> None:
    model.fit(X, Y, 4, verbose=0, validation_data=(X, Y))
    model.evaluate(X, Y, 4, verbose=0)
    model.predict(X, 4, verbose=0)
    model.train_on_batch(X[:4], Y[:4])


def _builds_in_fit(strategy: Any, model: Any) -> None:
    """The weights are made while the step is traced: TensorFlow then computes their first values in a function."""
    unbuilt = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(3)])
    unbuilt.compile("adam", LOSS)
    unbuilt.fit(X, Y, 4, verbose=0)


def _maps(strategy: Any, model: Any) -> None:
    mapped = tf.data.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x + model(x[None])[0, 0], y))
    model.fit(mapped.batch(4, drop_remainder=True), shuffle=False, verbose=0)


def _runs(strategy: Any, model: Any) -> None:
    inner = tf.function(model.call)
    strategy.run(inner, [tf.constant(X)])
    tf.function(lambda x: strategy.run(inner, [x]))(tf.constant(X))


def _moves(strategy: Any, model: Any) -> None:
    kernel = model.layers[0].kernel.value
    tf.function(lambda: kernel.assign(tf.zeros([8, 4])))()
    tf.function(lambda x: 2.0 * x)(tf.constant(X))


@pytest.mark.parametrize("work", [_trains, _builds_in_fit, _maps, _runs, _moves])
def test_what_runs_on_the_device_or_computes_nothing_is_not_told(
    work: Callable[[Any, Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    with ipus(1) as strategy, strategy.scope():
        work(strategy, made())
    assert "on TensorFlow's CPU" not in caplog.text


def test_a_model_from_outside_the_scope_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    stock = made()
    with ipus(1) as strategy, strategy.scope():
        tf.function(stock.call)(tf.constant(X))
    stock.fit(X, Y, 4, verbose=0)
    assert "on TensorFlow's CPU" not in caplog.text
