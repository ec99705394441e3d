"""Augmentation layers that XLA cannot compile run on the device, with stock Keras's values and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.device_counts import device_work
from tests.helpers.keras_layers_left_out import DRAWING_LAYERS, WARPING_LAYERS
from tests.helpers.keras_parity import TIGHT, numbers
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

CHAINED_LAYERS: dict[str, Callable[[], keras.layers.Layer]] = {
    "AugMix": lambda: keras.layers.AugMix(num_chains=1, chain_depth=1, seed=1),
    "RandomElasticTransform": DRAWING_LAYERS["RandomElasticTransform"],
}
"""Layers that draw while they change images. The others of `DRAWING_LAYERS` are compared with stock Keras's below."""
PICTURES = np.abs(numbers(4, 8, 8, 3)) * 60
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


@pytest.mark.parametrize("table", [WARPING_LAYERS, CHAINED_LAYERS], ids=["warping", "chained"])
def test_layers_change_images_in_training_only(strategy: Any, table: dict[str, Callable[[], Any]]) -> None:
    class Changes(keras.Model):
        """How much each layer changes each image, in training and without."""

        def __init__(self) -> None:
            super().__init__()
            self.augmenting = [make() for make in table.values()]

        def call(self, x: Any) -> Any:
            changed = [[layer(x, training=training) - x for layer in self.augmenting] for training in (True, False)]
            return keras.ops.mean(keras.ops.abs(changed), (3, 4, 5))

    with strategy.scope(), device_work() as work:
        model = Changes()
        trained, inferred = model.predict_on_batch(PICTURES)
    assert work.counts.executions == 1
    assert dict(zip(table, (trained > 0.5).any(1).tolist(), strict=True)) == dict.fromkeys(table, True)
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


@pytest.mark.parametrize("name", ["CutMix", "MixUp", "RandAugment"])
def test_what_was_drawn_is_done_as_stock_keras_does_it(strategy: Any, name: str) -> None:
    with strategy.scope():  # which patches Keras's layers
        layer = DRAWING_LAYERS[name]()
    drawn = layer.get_random_transformation(PICTURES, training=True, seed=keras.random.SeedGenerator(4))

    def run(images: tf.Tensor) -> tf.Tensor:
        return layer.transform_images(images, drawn, training=True)

    with device_work() as work:
        ours = strategy.run(tf.function(run), args=(tf.constant(PICTURES),))
    assert work.counts.executions == 1
    np.testing.assert_allclose(ours, run(tf.constant(PICTURES)), rtol=TIGHT, atol=TIGHT * 255)
    assert np.abs(ours - PICTURES).max() > 1.0


def test_a_crop_is_that_of_stock_keras(strategy: Any) -> None:
    layer = keras.layers.RandomCrop(5, 6)

    def run(images: tf.Tensor, down: tf.Tensor, along: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(images)
            cropped = layer.transform_images(images, (down, along))
            loss = tf.reduce_sum(cropped * cropped)
        return cropped, tape.gradient(loss, images)

    arguments = tf.constant(PICTURES), tf.constant(2), tf.constant(1)
    with device_work() as work:
        ours = strategy.run(tf.function(run), args=arguments)
    assert work.counts.executions == 1
    for got, wanted in zip(ours, run(*arguments), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_crops_are_drawn_in_fit(strategy: Any) -> None:
    ramp = np.broadcast_to(np.arange(8, dtype=np.float32)[:, np.newaxis, np.newaxis], (1, 8, 8, 1))
    with strategy.scope(), device_work() as work:
        same = keras.layers.Dense(1, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((8, 8, 1), 1), keras.layers.RandomCrop(1, 5, seed=1), same])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        losses = {model.fit(ramp, np.zeros((1, 1, 5, 1), np.float32), 1, verbose=0).history["loss"][0] for _ in "12345"}
    assert work.counts.executions == 5
    assert losses <= {float(row**2) for row in range(8)}
    assert len(losses) > 1


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_a_blur_of_a_width_that_is_drawn(strategy: Any, data_format: str) -> None:
    def run(images: tf.Tensor, size: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        return keras.ops.image.gaussian_blur(images, (size, size), (sigma, sigma), data_format)

    arguments = tf.constant(PICTURES), tf.constant(5), tf.constant(0.8)
    with strategy.scope(), device_work() as work:
        ours = strategy.run(tf.function(run), args=arguments)
    assert work.counts.executions == 1
    np.testing.assert_allclose(ours, run(*arguments), rtol=TIGHT, atol=TIGHT * 255)
