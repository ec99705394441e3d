"""A `tf.function` that host and device share has a trace for each: the same numbers, whichever calls it first."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
import keras_ipu.pipeline.stage
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy
from tests.helpers.some_ipus import ipus

__all__ = ["strategy"]

tf1 = tf.compat.v1
SEED = np.array([7, 9], np.int32)


class Shared:
    """Draws seeded numbers and counts values, by a function within a function; knows how often each was traced."""

    def __init__(self) -> None:
        self.traces = [0, 0]

    @tf.function
    def outer(self, seed: tf.Tensor) -> Any:
        self.traces[0] += 1
        drawn, counts = self.inner(seed)
        return 1.0 * drawn, counts

    @tf.function
    def inner(self, seed: tf.Tensor) -> Any:
        self.traces[1] += 1
        counts = tf.math.bincount(seed, minlength=16)
        return tf.random.stateless_uniform([5], seed), counts


def of_tensorflow(seed: np.ndarray = SEED) -> list[bytes]:
    drawn = tf.random.stateless_uniform([5], seed)
    return [drawn.numpy().tobytes(), np.bincount(seed, minlength=16).astype(np.int32).tobytes()]


def memory(results: Any) -> list[bytes]:
    return [np.asarray(result).tobytes() for result in results]


def by_strategy(shared: Shared) -> Any:
    return ipu.ipu_strategy.IPUStrategy().run(tf.function(lambda seed: shared.outer(seed)), (tf.constant(SEED),))


def by_compile(shared: Shared) -> Any:
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        return ipu.ipu_compiler.compile(lambda seed: list(shared.outer(seed)), [SEED])


def directly(shared: Shared) -> Any:
    return ipu.ipu_strategy.IPUStrategy().run(shared.outer, (tf.constant(SEED),))


@pytest.mark.parametrize("on_device", [by_strategy, by_compile, directly])
@pytest.mark.parametrize("host_first", [True, False])
def test_the_same_numbers_whoever_is_first(strategy: Any, on_device: Callable[[Shared], Any], host_first: bool) -> None:
    shared = Shared()
    on_host: Callable[[Shared], Any] = lambda shared: shared.outer(tf.constant(SEED))  # noqa: E731
    for run in (on_host, on_device) if host_first else (on_device, on_host):
        for _ in range(3):
            with device_work() as did:
                assert memory(run(shared)) == of_tensorflow()
            assert did.counts.executions == (run is on_device)
    assert shared.traces == [2, 2]


def test_the_host_keeps_tensorflows_ops(strategy: Any) -> None:
    shared = Shared()
    by_strategy(shared)
    nodes = shared.inner.get_concrete_function(tf.constant(SEED)).graph.as_graph_def().node
    assert {"StatelessRandomUniformV2", "DenseBincount"} <= {node.op for node in nodes}


def test_in_a_graph_of_tensorflow_1() -> None:
    with tf.Graph().as_default(), tf1.Session() as session, ipus(1):
        shared = Shared()
        seed = tf.constant(SEED)
        on_host = shared.outer(seed)
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            placed = shared.outer(seed)
            compiled = ipu.ipu_compiler.compile(lambda: list(shared.outer(tf.constant(SEED))))
        with device_work() as did:
            results = session.run([on_host, placed, compiled])
        assert did.counts.executions == 2
    assert [memory(each) for each in results] == [of_tensorflow()] * 3


class Noise(keras.layers.Layer):
    """Adds the numbers of a `Shared` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared()

    @tf.function
    def noise(self) -> tf.Tensor:
        return self.shared.outer(tf.constant(SEED))[0]

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + self.noise()


class Model(keras.Model):
    """Has a step of its own that calls a `tf.function` method."""

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self.noisy, self.dense, self.shared = Noise(), keras.layers.Dense(1, kernel_initializer="ones"), shared

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.dense(self.noisy(inputs))

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        drawn, counts = self.shared.outer(tf.constant(SEED))
        y = self(data[0], training=True)
        return {"sum": tf.reduce_sum(drawn) + tf.reduce_sum(y), "counts": tf.reduce_sum(counts)}


def _trained(shared: Shared) -> tuple[list[float], Model]:
    x = np.arange(40, dtype=np.float32).reshape(8, 5)
    model = Model(shared)
    model.compile(optimizer="sgd", loss="mse", jit_compile=False)
    history = model.fit(x, x[:, :1], batch_size=2, epochs=3, verbose=0)
    predicted = model.predict(x, batch_size=4, verbose=0).ravel()
    return [*history.history["sum"], *history.history["counts"], *map(float, predicted)], model


@pytest.mark.parametrize("host_first", [True, False])
def test_in_fit_and_predict_of_keras(strategy: Any, host_first: bool) -> None:
    stock, _ = _trained(Shared())
    shared = Shared()
    if host_first:
        assert memory(shared.outer(tf.constant(SEED))) == of_tensorflow()
    with strategy.scope(), device_work() as did:
        ours, model = _trained(shared)
    assert did.counts.steps == 3 * 4 + 2
    np.testing.assert_allclose(ours, stock, rtol=1e-6)
    assert memory(shared.outer(tf.constant(SEED))) == of_tensorflow()
    # One for the host, one for each program of the device, of `fit` and of `predict`: not one a step or an epoch.
    # A program that has imported `PipelineStage` builds the layers on the host before the first step, to find their
    # stages.
    assert keras_ipu.pipeline.stage.__name__ in sys.modules
    assert shared.traces == [2, 2]
    assert model.noisy.shared.traces == [3, 3]


@pytest.mark.parametrize("layer", [keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN])
def test_a_function_that_ran_by_itself_is_differentiated_afterwards(layer: Any, strategy: Any) -> None:
    """Its trace was of another program, whose graph is made, and no longer one for XLA."""
    recurrent = layer(4)
    x = tf.constant(np.random.default_rng(0).normal(size=(2, 5, 3)), tf.float32)

    def loss(x: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(forward(x) ** 2)
        return value, tape.gradient(value, recurrent.trainable_variables)

    forward = tf.function(lambda x: recurrent(x))
    expected = forward(x), loss(x)
    with device_work() as work:
        found = strategy.run(forward, [x]), strategy.run(tf.function(loss), [x])
    assert work.counts.executions == 2
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
