"""User code's own JAX functions with layers of a scope are reported, and no others: with KERAS_BACKEND=jax."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
import numpy as np
import pytest

from ipu_tf.emulation import clear_session
from tests.helpers.some_ipus import ipus

X, Y = np.ones((16, 8), np.float32), np.zeros(16, np.int32)


@pytest.fixture(autouse=True)
def nothing_told_yet() -> Iterator[None]:
    clear_session()
    yield


def made() -> Any:
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dropout(0.1), keras.layers.Dense(3)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def test_a_function_with_a_models_layers_is_told_once_by_name(caplog: pytest.LogCaptureFixture) -> None:
    @jax.jit
    def before(x: Any) -> Any:
        return model(x)

    def loop(x: Any) -> Any:
        return keras.ops.fori_loop(0, 2, lambda i, total: total + keras.ops.sum(model.layers[0](x)), 0.0)

    with ipus(1) as strategy, strategy.scope():
        model = made()
        for samples in (4, 4, 8):
            before(X[:samples])
    jax.jit(loop)(X)
    told = [record.getMessage() for record in caplog.records if "not on the device" in record.getMessage()]
    assert [text.split("`")[1] for text in told] == ["before", "loop"]
    assert all(f'File "{__file__}", line ' in text for text in told)


def test_two_functions_of_one_name_are_both_told(caplog: pytest.LogCaptureFixture) -> None:
    with ipus(1) as strategy, strategy.scope():
        model = made()
        one = jax.jit(lambda x: model(x))
        other = jax.jit(lambda x: 2 * model(x))
        for samples in (4, 8):
            one(X[:samples])
            other(X[:samples])
    assert caplog.text.count("not on the device") == 2


class Jitted(keras.layers.Layer):
    """Its own `jax.jit` and `jax.checkpoint`, within a step on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(8)

    def call(self, x: Any) -> Any:
        """The layer's results, twice."""
        return jax.jit(lambda x: self.dense(x))(x) + jax.checkpoint(lambda x: self.dense(x))(x)

    def compute_output_spec(self, x: Any) -> Any:
        """As the input."""
        return keras.KerasTensor(x.shape, x.dtype)


def _trains(model: Any) -> None:
    model.fit(X, Y, batch_size=4, verbose=0, validation_data=(X, Y))
    model.evaluate(X, Y, batch_size=4, verbose=0)
    model.predict(X, batch_size=4, verbose=0)
    model.train_on_batch(X[:4], Y[:4])


def _trains_with_a_jitted_layer(model: Any) -> None:
    inner = keras.Sequential([keras.Input((8,)), Jitted(), keras.layers.Dense(3)])
    inner.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inner.fit(X, Y, batch_size=4, verbose=0)


def _calls(model: Any) -> None:
    model(X)
    jax.jit(lambda x: 2 * x)(X)


def _gives_costs(model: Any) -> None:
    model.split_into_pipeline_stages(1)


@pytest.mark.parametrize("work", [_trains, _trains_with_a_jitted_layer, _calls, _gives_costs])
def test_what_runs_on_the_device_is_not_told(work: Callable[[Any], None], caplog: pytest.LogCaptureFixture) -> None:
    with ipus(1) as strategy, strategy.scope():
        work(made())
    assert "not on the device" not in caplog.text


def test_a_model_from_outside_the_scope_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    stock = made()
    with ipus(1) as strategy, strategy.scope():
        jax.jit(lambda x: stock(x))(X)
    assert "not on the device" not in caplog.text
