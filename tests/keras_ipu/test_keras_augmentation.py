"""Augmentation layers that rotate, shift and zoom images run on the device, with stock Keras's values and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.device_counts import device_work
from tests.helpers.keras_layers_left_out import WARPING_LAYERS
from tests.helpers.keras_parity import TIGHT, numbers
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

IMAGES = numbers(3, 7, 9, 2)
TRANSFORMS = np.array(
    [
        [1.1, 0.2, -1.5, -0.3, 0.9, 2.2, 0.01, -0.02],
        [1.0, 0.0, 20.3, 0.0, 1.0, -30.1, 0.0, 0.0],
        [0.5, 0.0, 0.0, 0.0, 0.4, 0.0, 0.0, 0.0],
    ],
    np.float32,
)
MODES = list(itertools.product(["NEAREST", "BILINEAR"], ["CONSTANT", "REFLECT", "WRAP", "NEAREST"]))


def _warp(interpolation: str, fill_mode: str) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    def run(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(images)
            warped = tf.raw_ops.ImageProjectiveTransformV3(
                images=images,
                transforms=TRANSFORMS,
                output_shape=[6, 8],
                interpolation=interpolation,
                fill_mode=fill_mode,
                fill_value=0.5,
            )
            loss = tf.reduce_sum(warped * warped)
        return warped, tape.gradient(loss, images)

    return run


@pytest.mark.parametrize(("interpolation", "fill_mode"), MODES)
def test_the_op_and_its_gradient(strategy: Any, interpolation: str, fill_mode: str) -> None:
    run, images = _warp(interpolation, fill_mode), tf.constant(IMAGES)
    with device_work() as work:
        ours = strategy.run(tf.function(run), args=(images,))
    assert work.counts.executions == 1
    for got, wanted in zip(ours, run(images), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=TIGHT, atol=TIGHT)


def test_layers_change_images_in_training_only(strategy: Any) -> None:
    class Changes(keras.Model):
        """How much each layer changes each image, in training and without."""

        def __init__(self) -> None:
            super().__init__()
            self.augmenting = [make() for make in WARPING_LAYERS.values()]

        def call(self, x: Any) -> Any:
            changed = [[layer(x, training=training) - x for layer in self.augmenting] for training in (True, False)]
            return keras.ops.mean(keras.ops.abs(changed), (3, 4, 5))

    images = np.abs(numbers(4, 8, 8, 3)) * 60
    with strategy.scope(), device_work() as work:
        model = Changes()
        trained, inferred = model.predict_on_batch(images)
    assert work.counts.executions == 1
    assert dict(zip(WARPING_LAYERS, (trained > 1.0).any(1).tolist(), strict=True)) == dict.fromkeys(
        WARPING_LAYERS, True
    )
    assert not np.any(inferred)


def test_a_rotation_is_that_of_stock_keras(strategy: Any) -> None:
    layer = keras.layers.RandomRotation(0.3, fill_mode="reflect", seed=1)
    drawn = layer.get_random_transformation(IMAGES, training=True, seed=keras.random.SeedGenerator(2))

    class Rotating(keras.Model):
        def call(self, x: Any) -> Any:
            return layer.transform_images(x, drawn)

    with strategy.scope(), device_work() as work:
        ours = Rotating().predict(IMAGES, 3, verbose=0)
    assert work.counts.executions == 1
    np.testing.assert_allclose(ours, Rotating().predict(IMAGES, 3, verbose=0), rtol=TIGHT, atol=TIGHT)
    assert np.abs(ours - IMAGES).max() > 0.1
