"""Random layers of Keras in steps of several replicas: each replica draws its own numbers, the first stock Keras's.

`KERAS_BACKEND=jax pytest` runs it with Keras on JAX.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
ONES = np.ones((8, 1000), np.float32)


class Dropout(layers.Dropout):
    """Drops elements whatever it is told, as for Monte Carlo estimates."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return super().call(inputs, training=True)


class Noise(layers.Layer):
    """Adds numbers of a generator of its own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.generator = keras.random.SeedGenerator(1)

    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal(keras.ops.shape(inputs), seed=self.generator)


RANDOM: dict[str, Any] = {"dropout": lambda: Dropout(0.5, seed=1), "noise": Noise}


def monte_carlo(name: str) -> keras.Model:
    """A model that is random in `predict` too."""
    return keras.Sequential([keras.Input((1000,)), RANDOM[name]()])


@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("name", RANDOM)
def test_replicas_draw_numbers_of_their_own(name: str, replicas: int) -> None:
    stock = monte_carlo(name).predict(ONES[:2], batch_size=2, verbose=0)
    with ipus(replicas) as strategy, strategy.scope(), device_work() as work:
        found = monte_carlo(name).predict(ONES, batch_size=2, verbose=0).reshape(-1, 2, 1000)
    assert work.counts.executions > 0
    np.testing.assert_allclose(found[0], stock, rtol=1e-5, atol=1e-5)
    for first in range(len(found)):
        for second in range(first):
            assert (found[first] == found[second]).mean() < 0.6


@pytest.mark.parametrize("samples", [8, 6])
def test_replicas_train_to_the_same_weights(samples: int) -> None:
    """With a remainder too, which every replica computes whole: there they draw the same, as their weights show."""
    x, y = ONES[:samples] / 100, np.ones((samples, 2), np.float32)
    with ipus(2) as strategy, strategy.scope():
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((1000,)), layers.Dropout(0.5), layers.Dense(2)])
        model.compile("sgd", "mse", steps_per_execution=2)
        model.fit(x, y, batch_size=2, epochs=3, verbose=0, shuffle=False)
        on_each = model.predict(ONES[:4], batch_size=2, verbose=0)  # two rows by each replica's weights
    np.testing.assert_array_equal(on_each[:2], on_each[2:])
    kernel, bias = model.get_weights()[:2]
    np.testing.assert_allclose(on_each, ONES[:4] @ kernel + bias, rtol=1e-4)


def test_one_replica_draws_as_stock_keras_does() -> None:
    def losses() -> list[float]:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((1000,)), layers.Dropout(0.5), layers.Dense(2)])
        model.compile("sgd", "mse")
        return model.fit(ONES / 100, np.ones((8, 2)), batch_size=2, verbose=0, shuffle=False).history["loss"]

    wanted = losses()
    with ipus(1) as strategy, strategy.scope():
        np.testing.assert_allclose(losses(), wanted, rtol=1e-5)
