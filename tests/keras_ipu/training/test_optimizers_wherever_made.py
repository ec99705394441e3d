"""Optimizers that are made, or built, outside of the scope that they are used in; layers that `call` leaves out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_ipu.pipeline.stage
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy
from tests.helpers.some_ipus import ipus

__all__ = ["strategy"]
X, Y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)


class PowerCut(keras.callbacks.Callback):
    """Ends a run at the beginning of its second epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            raise ConnectionError


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_backup_is_restored_outside_of_the_scope(strategy: Any, tmp_path: Path) -> None:
    def trained(*more: Any, backup: bool = True) -> list[np.ndarray]:
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
        model.compile("adam", "mse")
        callbacks = [keras.callbacks.BackupAndRestore(tmp_path / "backup")] if backup else []
        model.fit(X, Y, batch_size=4, epochs=3, verbose=0, shuffle=False, callbacks=[*callbacks, *more])
        return list(model.get_weights())

    wanted = trained(backup=False)
    with pytest.raises(ConnectionError):
        trained(PowerCut())
    for mine, theirs in zip(trained(), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


class Own(keras.Model):
    """A model whose step has an optimizer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.net = keras.Sequential([keras.Input((4,)), layers.Dense(1, kernel_initializer="ones")])
        self.built = True

    def compile(self, own_optimizer: Any) -> None:
        super().compile()
        self.own_optimizer = own_optimizer

    def train_step(self, x: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.net(x) ** 2)
        weights = self.net.trainable_weights
        self.own_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def test_an_optimizer_of_an_own_step_made_outside_of_the_scope(strategy: Any) -> None:
    def losses(model: Own) -> list[float]:
        model.compile(keras.optimizers.Adam(0.1))
        return model.fit(X, batch_size=4, epochs=2, verbose=0, shuffle=False).history["loss"]

    wanted = losses(Own())
    with strategy.scope():
        model = Own()
    with device_work() as work:
        np.testing.assert_allclose(losses(model), wanted, rtol=1e-5)
    assert work.counts.steps == 4


def test_rows_of_a_variable_of_tensorflow_by_an_optimizer_of_keras(strategy: Any) -> None:
    with strategy.scope():
        table, optimizer = tf.Variable(tf.ones([10, 4])), keras.optimizers.Adam(0.1)
        optimizer.build([table])

        @tf.function
        def step(ids: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table], strict=True))
            return loss

        assert float(strategy.run(step, args=(tf.constant([1, 1, 4]),))) == 12.0
    assert (table.numpy()[[1, 4]] < 1).all() and (table.numpy()[0] == 1).all()


class Pair(keras.Model):
    """Takes two inputs, and has a layer that only another method uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = layers.Dense(4), layers.Dense(1)

    def call(self, first: Any, second: Any) -> Any:
        return self.body(first + second)


@pytest.mark.filterwarnings("ignore:.*build.*:UserWarning")  # stock, of layers without weights yet
def test_a_model_that_leaves_a_layer_unbuilt(strategy: Any) -> None:
    """In a program that uses stages, too: the layers of its models are built to find theirs."""
    assert keras_ipu.pipeline.stage.__name__ in sys.modules
    with strategy.scope():
        assert Pair()(X, X).shape == (8, 4)


def test_a_step_that_is_a_function_and_batches_left_over() -> None:
    """The function is traced for the left ones anew: what it was traced with for full steps is another thing."""

    class Function(Own):
        train_step = tf.function(Own.train_step)

    with ipus(4) as strategy, strategy.scope():
        model = Function()
        model.compile(keras.optimizers.SGD(0.001))
        with pytest.raises(Exception, match="in a function that is traced for itself, such as a `tf.function`"):
            model.fit(np.ones((56, 4), np.float32), batch_size=8, shuffle=False, verbose=0)  # 4 batches, and 3
