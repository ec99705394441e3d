"""Datasets and threads that use a model while it trains: they see its weights as they are by then."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

ONES = np.ones((4, 1), np.float32)


def counting(steps_per_execution: int = 1) -> keras.Model:
    """A model whose only weight, and so what it predicts for ones, is minus the number of updates."""
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((1,)), layer])
    mean = lambda y, p: tf.reduce_mean(p, -1)  # noqa: E731 - its gradient is 1
    model.compile(keras.optimizers.SGD(1.0), mean, steps_per_execution=steps_per_execution)
    return model


@pytest.mark.parametrize("steps_per_execution", [1, 8])
def test_a_generator_predicts_with_the_newest_weights(steps_per_execution: int) -> None:
    """Stock Keras asks for elements some steps ahead; no prediction is older than that."""
    steps, seen = 40, list[float]()

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        while True:
            seen.append(float(model.predict_on_batch(ONES)[0, 0]))
            yield ONES, ONES

    with ipus(1) as strategy:
        with strategy.scope():
            model = counting(steps_per_execution)
        with device_work() as work:
            model.fit(batches(), steps_per_epoch=steps, epochs=1, shuffle=False, verbose=0)
        assert model.get_weights()[0].item() == -steps
    assert work.counts.steps >= steps
    assert seen == sorted(seen, reverse=True), "weights of an earlier update after those of a later one"
    assert min(seen) <= -steps / 2, seen


def test_threads_train_one_model() -> None:
    """As with stock Keras, no update is lost: each subtracts 1."""
    with ipus(1) as strategy, concurrent.futures.ThreadPoolExecutor(4) as pool:
        with strategy.scope():
            model = counting()
        model.train_on_batch(ONES, ONES)
        list(pool.map(lambda _: model.train_on_batch(ONES, ONES), range(60)))
        assert model.get_weights()[0].item() == -61


def test_one_model_predicts_while_another_trains() -> None:
    """The end of a prediction writes values back to the host, and leaves alone those that the other has."""
    done = threading.Event()
    with ipus(1) as strategy, concurrent.futures.ThreadPoolExecutor(1) as pool:
        with strategy.scope():
            large = keras.Sequential([keras.Input((700,)), *(keras.layers.Dense(700) for _ in range(6))])
            large.compile("sgd", "mse")
            small = counting()
        small.predict(ONES, verbose=0)
        data = np.zeros((8, 700), np.float32)

        def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            while True:
                yield data, data

        def train() -> None:
            try:
                large.fit(batches(), steps_per_epoch=80, shuffle=False, verbose=0)
            finally:
                done.set()

        future = pool.submit(train)
        predictions = 0
        while not done.is_set():
            assert small.predict(ONES, verbose=0).ravel().tolist() == [0.0] * 4
            predictions += 1
        future.result()
    assert predictions > 3


@pytest.mark.parametrize("batches", [4, 20])
def test_a_dataset_predicts_with_the_model_that_it_feeds(batches: int) -> None:
    """Its own predictions are those of the same program: they run beside the one that waits for them."""

    def rollout() -> Iterator[np.ndarray]:
        x = np.ones((1, 1), np.float32)
        for _ in range(batches):
            yield x
            x = model.predict(tf.data.Dataset.from_tensors(x), steps=1, verbose=0) + 1

    with ipus(1) as strategy:
        with strategy.scope():
            layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
            model = keras.Sequential([keras.Input((1,)), layer])
            model.compile("sgd", "mse")
        data = tf.data.Dataset.from_generator(rollout, output_signature=tf.TensorSpec((1, 1), tf.float32))
        assert model.predict(data, steps=batches, verbose=0).ravel().tolist() == list(range(1, batches + 1))
