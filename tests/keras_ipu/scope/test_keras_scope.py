"""Python code in a strategy's scope, besides fit, evaluate and predict: `clear_session`, eager updates of weights."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_tf._state import once
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import numbers
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]


def _fitted() -> keras.Model:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(numbers(8, 3), numbers(8, 1), 4, verbose=0)
    return model


def test_models_after_clear_session_run_on_the_device(strategy: Any) -> None:
    with strategy.scope():
        for _ in range(3):
            keras.backend.clear_session()
            with device_work() as work:
                assert _fitted().layers[0].name == "dense"
            assert work.counts.steps == 2
            assert tf.distribute.get_strategy() is strategy
    assert not tf.distribute.has_strategy()


def test_clear_session_within_nested_scopes_leaves_none_of_them(strategy: Any) -> None:
    with strategy.scope():
        with strategy.scope():
            keras.utils.clear_session()
        with device_work() as work:
            _fitted()
        assert work.counts.steps == 2
    assert not tf.distribute.has_strategy()


def test_variable_scopes_survive_clear_session(strategy: Any) -> None:
    with strategy.scope(), tf.compat.v1.variable_scope("outer"):
        keras.utils.clear_session()
        assert tf.compat.v1.get_variable_scope().name == "outer"
    assert tf.compat.v1.get_variable_scope().name == ""


def test_nothing_of_a_model_stays_after_clear_session(strategy: Any) -> None:
    with strategy.scope():
        model = _fitted()
        gone = weakref.ref(model), weakref.ref(model.layers[0])
        del model
        keras.backend.clear_session()
        gc.collect()
        assert [each() for each in gone] == [None, None]


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.5),
    "decay": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.1),
    "average": lambda: keras.optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=2),
    "accumulating": lambda: keras.optimizers.Adam(0.1, gradient_accumulation_steps=2),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=4.0),
}


def _updated(make: Callable[[], Any]) -> tuple[np.ndarray, ...]:
    """Weights after three updates by hand, and their loss."""
    dense = keras.layers.Dense(2, kernel_initializer=keras.initializers.RandomNormal(seed=1))
    optimizer, x, losses = make(), tf.constant(numbers(4, 3)), []
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(dense(x) ** 2)
        losses.append(float(loss))
        optimizer.apply(tape.gradient(loss, dense.trainable_variables), dense.trainable_variables)
    return *dense.get_weights(), np.array(losses)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_eager_updates_in_the_scope_are_stock_keras(strategy: Any, make: Callable[[], Any]) -> None:
    with strategy.scope():
        ours = _updated(make)
    for got, wanted in zip(ours, _updated(make), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_eager_updates_tell_once_how_to_run_on_the_device(strategy: Any, caplog: pytest.LogCaptureFixture) -> None:
    once._SAID.clear()
    with strategy.scope(), caplog.at_level(logging.WARNING, "ipu_tf"):
        _updated(keras.optimizers.Lion)
        _updated(keras.optimizers.Lion)
    told = [line for line in caplog.messages if "strategy.run(step, args)" in line]
    assert len(told) == 1 and "`Lion.apply`" in told[0]
