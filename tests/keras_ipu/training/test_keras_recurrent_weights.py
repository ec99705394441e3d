"""Recurrent layers read their weights before they loop over time, with the numbers of stock Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.lowering.stablehlo.module import walk
from ipu_tf.lowering.tensorflow.trace import lower
from keras_ipu.training.tensorflow.recurrent_weights import hoist_weight_reads
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy as strategy

STEPS, UNITS = 7, 5

LAYERS: dict[str, Callable[[], Any]] = {
    "LSTM": lambda: keras.layers.LSTM(UNITS),
    "GRU with dropout": lambda: keras.layers.GRU(UNITS, dropout=0.3, recurrent_dropout=0.3),
    "SimpleRNN, all outputs": lambda: keras.layers.SimpleRNN(UNITS, return_sequences=True),
    "stacked cells": lambda: keras.layers.RNN([keras.layers.LSTMCell(UNITS), keras.layers.GRUCell(3)]),
    "both ways": lambda: keras.layers.Bidirectional(keras.layers.LSTM(UNITS, go_backwards=False)),
}


def trained(make: Callable[[], Any], **compile_arguments: Any) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((STEPS, 3)), make(), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.1), "mse", **compile_arguments)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(16, STEPS, 3)).astype(np.float32), random.normal(size=(16, 1)).astype(np.float32)
    if model.output_shape[1:] == (STEPS, 2):
        y = np.repeat(y[:, None], STEPS, 1)
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    weights: list[np.ndarray] = model.get_weights()
    return weights


@pytest.mark.parametrize("name", LAYERS)
def test_training_agrees_with_stock_keras(name: str, strategy: ipu.ipu_strategy.IPUStrategyV1) -> None:
    wanted = trained(LAYERS[name], jit_compile=False)
    with strategy.scope(), device_work() as work:
        found = trained(LAYERS[name], steps_per_execution=4)
    assert (work.counts.executions, work.counts.steps) == (1, 4)
    for mine, stock in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, stock, rtol=1e-4, atol=1e-6)


def copies_kept(layer: Any) -> int:
    """Counts the arrays of one of the layer's kernels for each step that a gradient computes with."""

    def gradient(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x) ** 2)
        return tape.gradient(loss, layer.trainable_variables)

    function = tf.function(gradient, autograph=False, jit_compile=True)
    module = lower(function.get_concrete_function(tf.TensorSpec([2, STEPS, 3]))).module
    types = [str(result.type) for op in walk(module.main, module.functions) for result in op.results]
    kept = {f"tensor<{STEPS}x{'x'.join(map(str, weight.shape))}xf32>" for weight in layer.cell.trainable_variables}
    return sum(kind in kept for kind in types)


def test_kernels_are_kept_once(strategy: ipu.ipu_strategy.IPUStrategyV1) -> None:
    with strategy.scope():
        layer = keras.layers.LSTM(UNITS)
        layer.build((2, STEPS, 3))
    assert copies_kept(layer) > 0
    with hoist_weight_reads():
        assert copies_kept(layer) == 0


class Counting(keras.layers.LSTMCell):
    """A cell that counts its steps in a weight."""

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs: Any, states: Any, training: bool = False) -> Any:
        self.count.assign_add(1.0)
        return super().call(inputs, states, training=training)


def counted() -> float:
    cell = Counting(UNITS)
    model = keras.Sequential([keras.Input((STEPS, 3)), keras.layers.RNN(cell)])
    model.compile("sgd", "mse", steps_per_execution=2)
    model.fit(np.ones((8, STEPS, 3), np.float32), np.ones((8, UNITS), np.float32), batch_size=4, verbose=0)
    return float(cell.count.numpy())


def test_cells_of_users_keep_what_they_assign(strategy: ipu.ipu_strategy.IPUStrategyV1) -> None:
    stock = counted()
    with strategy.scope():
        assert counted() == stock >= 2 * STEPS


def regularized() -> Any:
    return keras.layers.SimpleRNNCell(UNITS, activity_regularizer="l2")


ADDING: dict[str, Callable[[], Any]] = {
    "a cell": regularized,
    "one of stacked cells": lambda: keras.layers.StackedRNNCells([keras.layers.GRUCell(3), regularized()]),
}


def loss_of(make: Callable[[], Any]) -> tuple[float, list[np.ndarray]]:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((STEPS, 3)), keras.layers.RNN(make(), unroll=True)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = np.ones((8, STEPS, 3), np.float32), np.ones((8, UNITS), np.float32)
    model.fit(x, y, batch_size=4, verbose=0)
    return model.evaluate(x, y, batch_size=4, verbose=0), model.get_weights()


@pytest.mark.parametrize("name", ADDING)
def test_losses_that_cells_add_count(name: str, strategy: ipu.ipu_strategy.IPUStrategyV1) -> None:
    wanted, weights = loss_of(ADDING[name])
    with strategy.scope(), device_work() as work:
        found, others = loss_of(ADDING[name])
    assert work.counts.steps == 4
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    for mine, stock in zip(others, weights, strict=True):
        np.testing.assert_allclose(mine, stock, rtol=1e-4, atol=1e-6)
