"""Ctrl-C in Keras's loop, in callbacks and while a model is traced ends `fit` and leaves the model usable."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import pytest

from tests.helpers.sigint import press_ctrl_c, sigint_interrupts  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

X, Y = np.arange(64, dtype=np.float32).reshape(16, 4) / 64, np.ones((16, 1), np.float32)


pytestmark = pytest.mark.usefixtures("sigint_interrupts")


def compute_for_ever() -> None:
    while True:
        time.sleep(0.01)


@keras.saving.register_keras_serializable("interrupts")
class Pressed(keras.layers.Dense):
    """Ctrl-C is pressed when its call is traced for the device, and tracing goes on for ever, once."""

    waits = False

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if Pressed.waits:
            Pressed.waits = False
            press_ctrl_c()
            compute_for_ever()
        return super().call(inputs, training)


def model(layer: type[keras.layers.Dense] = keras.layers.Dense) -> keras.Model:
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((4,)), layer(3, activation="tanh"), keras.layers.Dense(1)])
    made.compile("adam", "mse", steps_per_execution=2)
    return made


def fitted(made: keras.Model, callbacks: list[Any] | None = None, rows: int = 16) -> list[np.ndarray]:
    made.fit(X[:rows], Y[:rows], 4, verbose=0, shuffle=False, callbacks=callbacks)
    return made.get_weights()


def test_in_a_callback_that_takes_long() -> None:
    def never_ends(batch: int, logs: Any) -> None:
        press_ctrl_c()
        compute_for_ever()

    slow = keras.callbacks.LambdaCallback(on_train_batch_end=never_ends)
    half = 8
    with ipus(1) as strategy, strategy.scope():
        first = fitted(model(), rows=half)
        interrupted = model()
        with pytest.raises(KeyboardInterrupt):
            fitted(interrupted, [slow])
        np.testing.assert_equal(interrupted.get_weights(), first)
        interrupted.fit(X[half:], Y[half:], 4, verbose=0, shuffle=False)
        for mine, wanted in zip(interrupted.get_weights(), fitted(model()), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


def test_while_it_is_traced() -> None:
    with ipus(1) as strategy, strategy.scope():
        wanted = fitted(model())
        interrupted = model(Pressed)
        Pressed.waits = True
        with pytest.raises(KeyboardInterrupt):
            fitted(interrupted)
        for mine, other in zip(fitted(interrupted), wanted, strict=True):
            np.testing.assert_array_equal(mine, other)
