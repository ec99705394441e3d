"""Keras's optimizers in programs of several replicas: they get the sum of all replicas' gradients, as stock Keras's do.

So clipping, and the check of a `LossScaleOptimizer` that gradients are finite, do not depend on how a batch is split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.some_ipus import ipus

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(8, 4, 3)).astype(np.float32)
Y = RANDOM.normal(size=(8, 4, 2)).astype(np.float32)
STAGES, ACCUMULATED = 2, 4

CLIPPING: dict[str, Callable[[], Any]] = {
    "norm": lambda: keras.optimizers.SGD(0.1, clipnorm=0.1),
    "global norm": lambda: keras.optimizers.Adam(0.1, global_clipnorm=0.1),
    "value": lambda: keras.optimizers.SGD(0.1, momentum=0.9, clipvalue=0.1),
    "accumulated": lambda: keras.optimizers.SGD(0.1, clipvalue=0.1, gradient_accumulation_steps=2),
    "scaled": lambda: scaled(clipnorm=0.1),
}


def scaled(**options: Any) -> Any:
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, **options), initial_scale=2.0**10)


def built(make: Callable[[], Any]) -> tuple[Any, Any]:
    """A weight, and an optimizer for it."""
    weight, optimizer = keras.Variable(np.ones((3, 2), np.float32)), make()
    optimizer.build([weight])
    return weight, optimizer


def loss(x: Any, y: Any, weight: Any) -> Any:
    return tf.reduce_mean((tf.matmul(x, weight.value) - y) ** 2)


def gradient(x: Any, y: Any, weight: Any, optimizer: Any) -> Any:
    with tf.GradientTape() as tape:
        of_loss = optimizer.scale_loss(loss(x, y, weight))
    return tape.gradient(of_loss, weight.value)


def stock(make: Callable[[], Any], x: np.ndarray, joined: int) -> np.ndarray:
    """Returns the weight after each update of stock Keras with the summed gradients of `joined` batches."""
    weight, optimizer = built(make)
    weights = []
    for first in range(0, len(x), joined):
        batches = range(first, first + joined)
        optimizer.apply([sum(gradient(x[at], Y[at], weight, optimizer) for at in batches)], [weight])
        weights.append(weight.numpy())
    return np.array(weights)


def in_loop(make: Callable[[], Any], x: np.ndarray, replicas: int) -> np.ndarray:
    """Returns the weight of each replica after each step of a loop in `strategy.run`."""
    with ipus(replicas) as strategy, strategy.scope():
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices((x, Y)))
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        weight, optimizer = built(make)

        def body(x: Any, y: Any) -> Any:
            optimizer.apply_gradients([(gradient(x, y, weight, optimizer), weight)])
            return outfeed.enqueue(weight.value)

        @tf.function(jit_compile=True)
        def program() -> None:
            ipu.loops.repeat(len(x) // replicas, body, [], infeed)

        strategy.run(program)
        return np.array(outfeed.dequeue())


@pytest.mark.parametrize("name", CLIPPING)
def test_clips_the_sum_of_replicas(name: str) -> None:
    found, wanted = in_loop(CLIPPING[name], X, 2), stock(CLIPPING[name], X, 2)
    np.testing.assert_allclose(found, np.stack([wanted, wanted], axis=1), rtol=1e-4, atol=1e-5)


def test_infinite_gradients_of_one_replica_are_skipped_by_all() -> None:
    x = X.copy()
    x[3] = 1e30  # of replica 1
    found, wanted = in_loop(scaled, x, 2), stock(scaled, x, 2)
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(found, np.stack([wanted, wanted], axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["norm", "scaled"])
def test_a_pipeline_clips_the_sum_of_replicas(name: str) -> None:
    with ipus(2 * STAGES) as strategy, strategy.scope():
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices((X, Y)))
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        weight, optimizer = built(CLIPPING[name])

        def update(loss: Any) -> Any:
            return ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss, variables=[weight])

        @tf.function(jit_compile=True)
        def program() -> None:
            ipu.pipelining_ops.pipeline(
                [lambda x, y: (x, y), lambda x, y: loss(x, y, weight)],
                gradient_accumulation_count=ACCUMULATED,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=update,
            )

        strategy.run(program)
        found = weight.numpy()
    np.testing.assert_allclose(found, stock(CLIPPING[name], X, 2 * ACCUMULATED)[-1], rtol=1e-4, atol=1e-5)
