"""`pipeline` scales the loss for Keras optimizers that divide gradients by its scale, as stock Keras's `fit` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops.pipelining_ops import OptimizerFunctionOutput, pipeline
from keras_ipu.optimizers import ALSOptimizer
from tests.helpers.some_ipus import ipus

COUNT, UPDATES = 4, 5
SGD = tf.keras.optimizers.SGD
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "no scale": lambda: SGD(0.001),
    "fixed": lambda: SGD(0.001, loss_scale_factor=8.0),
    # These change their scale after every second update.
    "dynamic": lambda: tf.keras.optimizers.LossScaleOptimizer(SGD(0.001), 8.0, dynamic_growth_steps=2),
    "automatic": lambda: ALSOptimizer(SGD(0.001), initial_loss_scaling_factor=8, update_frequency=2),
    "both": lambda: ALSOptimizer(SGD(0.001, loss_scale_factor=4.0), initial_loss_scaling_factor=8),
}


def stock(optimizer: Any) -> tuple[list[float], float]:
    """The losses of all micro-batches and the weight after stock Keras's steps."""
    weight, losses = tf.Variable(2.0), []
    for _ in range(UPDATES):
        with tf.GradientTape() as tape:
            loss = (weight * 3.0) ** 2
            scaled = optimizer.scale_loss(COUNT * loss)
        losses += [float(loss)] * COUNT
        optimizer.apply_gradients([(tape.gradient(scaled, weight), weight)])
    return losses, float(weight)


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_are_those_of_stock_steps(name: str, built: bool) -> None:
    optimizer, out = OPTIMIZERS[name](), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(2) as strategy, strategy.scope():
        weight = tf.Variable(2.0)
        if built:
            optimizer.build([weight])

        @tf.function(autograph=False)
        def program() -> None:
            pipeline(
                [lambda: weight * 3.0, lambda x: x * x],
                COUNT,
                repeat_count=UPDATES,
                outfeed_queue=out,
                optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss, variables=[weight]),
            )

        strategy.run(program)
    other = OPTIMIZERS[name]()
    losses, wanted = stock(other)
    np.testing.assert_allclose(weight.numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(np.ravel(out.dequeue()), losses, rtol=1e-5)  # as the last stage gives them
    for mine, theirs in zip(optimizer.variables, other.variables, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, err_msg=mine.path)
    if name in ("dynamic", "automatic"):
        assert max(float(np.max(each.numpy())) for each in optimizer.variables) > 8  # its scale has grown


def test_small_gradients_of_keras_2_do_not_vanish() -> None:
    """Its optimizers take gradients that are divided already: the scale keeps those of float16 above zero."""
    tf_keras = pytest.importorskip("tf_keras")
    with ipus(2) as strategy, strategy.scope():
        weight = tf.Variable(1.0)
        optimizer = tf_keras.mixed_precision.LossScaleOptimizer(
            tf_keras.optimizers.legacy.SGD(1.0), dynamic=False, initial_scale=2.0**12
        )

        @tf.function(autograph=False)
        def program() -> None:
            pipeline(
                [lambda: tf.cast(weight, tf.float16) * 2.0**-6, lambda x: tf.cast(x, tf.float32) * 2.0**-20],
                COUNT,
                outfeed_queue=ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
                optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss, variables=[weight]),
            )

        strategy.run(program)
    np.testing.assert_allclose(1.0 - weight.numpy(), COUNT * 2.0**-26, rtol=1e-5)
