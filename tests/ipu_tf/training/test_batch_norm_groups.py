"""Batch normalisation over groups of replicas, against one big batch in plain TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._compat.tf1_batch_norm import batch_normalization
from ipu_tf.ops.replication_ops import replication_index
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

pytestmark = pytest.mark.filterwarnings("ignore:.layer.apply. is deprecated:UserWarning")
tf1 = tf.compat.v1
CHANNELS = 3
SHAPE = (2, 4, 4, CHANNELS)
SCALE, OFFSET = np.array([1.0, 0.5, 2.0], np.float32), np.array([0.0, 1.0, -1.0], np.float32)
EPSILON = 1e-3
Normalise = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def arrays(replicas: int) -> tuple[np.ndarray, np.ndarray]:
    """Every replica's batch, and what its results are weighted by in the loss."""
    numbers = np.random.default_rng(replicas)
    batches = [numbers.normal(size=(replicas, *SHAPE)).astype(np.float32) for _ in range(2)]
    return batches[0] + np.arange(replicas, dtype=np.float32).reshape(-1, 1, 1, 1, 1), batches[1]


def fused(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    return tf1.nn.fused_batch_norm(x, scale, offset, epsilon=EPSILON, is_training=True)[0]


def layer(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    return batch_normalization(x, center=False, scale=False, epsilon=EPSILON, training=True) * scale + offset


def gradients(normalise: Normalise, x: tf.Tensor, weights: tf.Tensor) -> list[tf.Tensor]:
    """The normalised batch, and the gradients of the batch, the scale and the offset."""
    scale, offset = tf.constant(SCALE), tf.constant(OFFSET)
    y = normalise(x, scale, offset)
    return [y, *tf.gradients(tf.reduce_sum(y * y * weights), [x, scale, offset])]


def expected(replicas: int, group: int) -> list[np.ndarray]:
    """The same for each group as one batch; what is one for all of the batch is one for the group."""
    results = []
    for x, weights in zip(*(np.split(array, replicas // group) for array in arrays(replicas)), strict=True):
        with tf.Graph().as_default(), tf1.Session() as session:
            flat = [tf.constant(array.reshape(-1, *SHAPE[1:])) for array in (x, weights)]
            results.append(session.run(gradients(fused, *flat)))
    y, to_x, to_scale, to_offset = (np.stack(parts) for parts in zip(*results, strict=True))
    return [y.reshape(replicas, *SHAPE), to_x.reshape(replicas, *SHAPE), to_scale, to_offset]


@pytest.mark.parametrize("normalise", [fused, layer])
@pytest.mark.parametrize(("replicas", "group"), [(1, 1), (2, 1), (2, 2), (4, 2), (4, 4)])
def test_a_group_is_one_batch(normalise: Normalise, replicas: int, group: int) -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    x, weights = arrays(replicas)
    with ipus(replicas, group), tf.Graph().as_default(), device_work() as work:

        def program() -> tf.Operation:
            mine = replication_index()
            return queue.enqueue(gradients(normalise, tf.constant(x)[mine], tf.constant(weights)[mine]))

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(program)
        taken = queue.dequeue()
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            session.run(run)
            given = [array.reshape(replicas, *array.shape[1 + (replicas > 1) :]) for array in session.run(taken)]
    assert work.counts.executions == 1
    wanted = expected(replicas, group)
    for number in range(2):
        np.testing.assert_allclose(given[number], wanted[number], rtol=2e-4, atol=2e-4)
    for number in (2, 3):  # each replica has its share, for the optimizer to sum up
        shares = given[number].reshape(replicas // group, group, CHANNELS).sum(1)
        np.testing.assert_allclose(shares, wanted[number], rtol=2e-4, atol=2e-4)


def test_a_layer_that_is_not_fused_has_the_statistics_of_its_own_batch() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    x, _ = arrays(2)
    with ipus(2, 2), tf.Graph().as_default(), tf1.Session() as session:

        def program() -> tf.Operation:
            own = tf.constant(x)[replication_index()]
            return queue.enqueue(batch_normalization(own, training=True, fused=False, epsilon=EPSILON))

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(program)
        taken = queue.dequeue()
        session.run(tf1.global_variables_initializer())
        session.run(run)
        given = session.run(taken)[0]
    wanted = (x - x.mean((1, 2, 3), keepdims=True)) / np.sqrt(x.var((1, 2, 3), keepdims=True) + EPSILON)
    np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-4)


def test_a_synchronized_layer_of_keras_has_the_statistics_of_all_replicas() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    x, _ = arrays(2)
    with ipus(2, 2) as strategy, strategy.scope():
        normalise: Any = keras.layers.BatchNormalization(epsilon=EPSILON, synchronized=True)
        normalise.build((None, *SHAPE[1:]))

        def program() -> None:
            queue.enqueue(normalise(tf.constant(x)[replication_index()], training=True))

        strategy.run(tf.function(program, autograph=False))
        given = queue.dequeue().numpy()[0]
    both = (0, 1, 2, 3)
    wanted = (x - x.mean(both, keepdims=True)) / np.sqrt(x.var(both, keepdims=True) + EPSILON)
    np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-4)
