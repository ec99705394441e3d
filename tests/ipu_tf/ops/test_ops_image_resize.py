"""Sizes of images on the device, and their gradients, against stock TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.one_ipu import strategy
from tests.helpers.ops_parity import on_device

__all__ = ["strategy"]

SIZES = [(8, 10), (5, 3), (2, 2), (7, 9), (4, 5), (1, 1), (13, 1)]


def assert_same(strategy: Any, function: Any, image: np.ndarray, rtol: float = 0.0) -> None:
    wanted = tf.nest.flatten(function(tf.constant(image)))
    for got, stock in zip(tf.nest.flatten(on_device(strategy, function, image)), wanted, strict=True):
        assert (got.dtype, got.shape) == (stock.dtype.as_numpy_dtype, stock.shape)
        np.testing.assert_allclose(got.astype(np.float64), stock.numpy().astype(np.float64), rtol, rtol)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32", "bfloat16"])
def test_the_nearest_pixels_are_as_they_were(strategy: Any, dtype: str) -> None:
    """Integers beyond float32's too."""
    image = np.random.default_rng(0).integers(0, 127 if dtype == "uint8" else 2**31 - 1, (2, 4, 5, 2))

    def resized(x: Any) -> list[Any]:
        resize = tf.compat.v1.image.resize_nearest_neighbor
        former = [resize(x, size, corners) for size in SIZES for corners in (False, True)]
        return [*[tf.image.resize(x, size, "nearest") for size in SIZES], *former]

    assert_same(strategy, resized, tf.cast(image, dtype).numpy())


def gradients(method: str, image: Any) -> list[Any]:
    """Gradients of several sizes, of an image that is computed: what follows takes them in its dtype."""
    found = []
    for size in [*SIZES[:4], (12, 10)]:
        with tf.GradientTape() as tape:
            tape.watch(image)
            resized = tf.cast(tf.image.resize(image * 2, size, method), tf.float32)
            total = tf.reduce_sum(resized**2)
        found.append(tape.gradient(total, image))
    return found


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("method", ["nearest", "bilinear"])
def test_gradients_have_the_dtype_of_the_image(strategy: Any, method: str, dtype: str) -> None:
    image = np.random.default_rng(0).integers(-4, 5, (1, 4, 5, 2)) / 2
    rtol = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    assert_same(strategy, lambda x: gradients(method, x), tf.cast(image, dtype).numpy(), rtol)


def test_images_of_open_sizes(strategy: Any) -> None:
    image = np.arange(40, dtype=np.float32).reshape(1, 4, 5, 2)
    function = tf.function(lambda x: tf.image.resize(x, (8, 3), "nearest"), [tf.TensorSpec([None, None, None, 2])])
    wanted = tf.image.resize(image, (8, 3), "nearest")
    np.testing.assert_array_equal(on_device(strategy, function, image), wanted)
