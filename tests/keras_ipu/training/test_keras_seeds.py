"""Seeds make what the device draws reproducible: `keras.utils.set_random_seed` and `tf.random.set_seed`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import numbers
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

ROOT = Path(__file__).resolve().parents[3]


class Noise(keras.layers.Layer):
    """Adds what TensorFlow draws."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + tf.random.normal(tf.shape(inputs))


def _fitted(layer: Callable[[], Any], seed: int, shuffle: bool = False) -> bytes:
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), layer(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(numbers(160, 6), numbers(160, 1), 4, epochs=2, verbose=0, shuffle=shuffle)
    return b"".join(weight.tobytes() for weight in model.get_weights())


def _drawn(strategy: Any, global_seed: int, **options: int) -> list[float]:
    tf.random.set_seed(global_seed)
    function = tf.function(lambda: tf.random.uniform([], **options))
    return [float(strategy.run(function)) for _ in range(3)]


LAYERS: dict[str, Callable[[], Any]] = {
    "dropout": lambda: keras.layers.Dropout(0.5),
    "gaussian noise": lambda: keras.layers.GaussianNoise(0.5),
    "tf.random": Noise,
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_training_is_the_same_with_the_same_seed(strategy: Any, layer: Callable[[], Any]) -> None:
    with strategy.scope():
        first, second, other = (_fitted(layer, seed, shuffle=True) for seed in (7, 7, 8))
    assert first == second != other


STOCK_LAYERS = {name: LAYERS[name] for name in ("dropout", "gaussian noise")} | {
    "gaussian dropout": lambda: keras.layers.GaussianDropout(0.3),
    "alpha dropout": lambda: keras.layers.AlphaDropout(0.3),
    "spatial dropout": lambda: keras.Sequential(
        [keras.layers.Reshape((2, 2)), keras.layers.SpatialDropout1D(0.4), keras.layers.Flatten()]
    ),
}


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("layer", STOCK_LAYERS.values(), ids=STOCK_LAYERS)
def test_training_draws_as_stock_keras_does(strategy: Any, layer: Callable[[], Any], steps: int) -> None:
    stock = _weights(layer, contextlib.nullcontext(), steps)
    with device_work() as did:
        ours = _weights(layer, strategy.scope(), steps)
    assert did.counts.executions > 0
    for weight, expected in zip(ours, stock, strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-6)


def _weights(layer: Callable[[], Any], scope: contextlib.AbstractContextManager[Any], steps: int) -> list[np.ndarray]:
    keras.utils.set_random_seed(7)
    with scope:
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), layer(), keras.layers.Dense(1)])
        model.compile("adam", "mse", steps_per_execution=steps, jit_compile=False)
        model.fit(numbers(160, 6), numbers(160, 1), 8, epochs=2, verbose=0)
    weights: list[np.ndarray] = model.get_weights()
    return weights


@pytest.mark.parametrize("options", [{}, {"seed": 5}], ids=["global seed", "seed of the op"])
def test_programs_draw_the_same_with_the_same_seed(strategy: Any, options: dict[str, int]) -> None:
    first, second, other = (_drawn(strategy, set_first, **options) for set_first in (3, 3, 4))
    assert first == second != other
    assert len(set(first)) == 3


def test_a_seed_of_one_device_goes_before_the_global_one(strategy: Any) -> None:
    ipu.utils.reset_ipu_seed(5)
    function = tf.function(lambda: tf.random.uniform([]))
    first = float(strategy.run(function))
    tf.random.set_seed(1)
    assert float(strategy.run(function)) != first
    ipu.utils.reset_ipu_seed(5)
    assert float(strategy.run(function)) == first


def test_without_a_seed_numbers_differ(strategy: Any) -> None:
    function = tf.function(lambda: tf.random.uniform([4]))
    tf.random.set_seed(1)
    tf.random.set_seed(None)
    first = strategy.run(function).numpy()
    tf.random.set_seed(None)
    assert not np.array_equal(strategy.run(function).numpy(), first)


_PROGRAM = """
import tensorflow as tf, keras
{line}
import ipu_tf as ipu
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
print(ipu.ipu_strategy.IPUStrategy().run(tf.function(lambda: tf.random.uniform([4]))).numpy().tobytes().hex())
"""


def test_processes_draw_the_same_also_if_the_seed_is_set_first(strategy: Any) -> None:
    tf.random.set_seed(9)
    ours = strategy.run(tf.function(lambda: tf.random.uniform([4]))).numpy().tobytes().hex()
    command = [sys.executable, "-c", _PROGRAM.format(line="keras.utils.set_random_seed(9)")]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=True, timeout=600)
    assert ran.stdout.split()[-1] == ours
