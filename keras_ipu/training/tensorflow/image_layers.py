"""Augmentation layers that draw the size of something: in a traced step they compute it with fixed shapes.

Keras's own code slices, and makes ranges, by numbers that a layer draws. On JAX that is `RandomCrop` alone. Results
are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import keras
import tensorflow as tf

from ipu_tf._training.weight_update import traced_for_device
from keras_ipu.stock import patches as keras_patches


def patch_image_layers() -> None:
    """Patches `Equalization`, `RandomCrop` and Gaussian blurs of a width that is drawn. Applies in traced steps."""
    patch_crops()
    keras_patches.patch_method(
        keras.layers.Equalization, "_apply_equalization", lambda layer: traced_for_device(), _equalized
    )
    keras_patches.patch_gaussian_blur(_blurred)


def patch_crops() -> None:
    """Patches `RandomCrop`, on either back end. Applies where the place of a crop is computed in a traced step."""
    keras_patches.patch_method(keras.layers.RandomCrop, "transform_images", lambda layer: True, _cropped)


def _is_computed(start: Any) -> bool:
    return isinstance(start, jax.core.Tracer) or (tf.is_tensor(start) and traced_for_device())


def _equalized(stock: Callable[..., Any], layer: Any, channel: tf.Tensor, histogram: tf.Tensor) -> tf.Tensor:
    """Looks pixels up in the cumulated histogram; stock Keras finds its first count by the indices of all of them."""
    counts = tf.cumsum(histogram)
    first = tf.gather(counts, tf.argmax(tf.cast(counts > 0, tf.int32)))
    others = tf.maximum(counts[-1] - first, 1)
    table = tf.clip_by_value(tf.round(tf.cast((counts - first) * 255 / others, channel.dtype)), 0, 255)
    places = tf.clip_by_value(channel / 255.0 * (layer.bins - 1), 0, layer.bins - 1)
    return tf.gather(table, tf.cast(places, tf.int32))


def _cropped(stock: Callable[..., Any], layer: Any, images: Any, transformation: Any, training: bool = True) -> Any:
    """Crops by a slice of the layer's size; stock Keras's has an end that is computed."""
    if not training or not any(map(_is_computed, transformation)):
        return stock(layer, images, transformation, training)
    images = keras.ops.cast(images, layer.compute_dtype)
    begin, size = [0] * len(images.shape), list(images.shape)
    for axis, start, length in zip(
        (layer.height_axis, layer.width_axis), transformation, (layer.height, layer.width), strict=True
    ):
        begin[axis], size[axis] = start, length
    return keras.ops.slice(images, begin, size)


def _blurred(
    stock: Callable[..., Any], images: Any, kernel_size: Any, sigma: Any, data_format: str | None = None
) -> tf.Tensor:
    """Blurs by two products with band matrices if a kernel's size is computed."""
    if tf.get_static_value(tf.convert_to_tensor(kernel_size)) is not None or not traced_for_device():
        return stock(images, kernel_size, sigma, data_format)
    spatial = "hw" if data_format == "channels_first" else "hwc"
    images = tf.convert_to_tensor(images)
    height, width = images.shape[-len(spatial)], images.shape[1 - len(spatial)]
    down = _band(height, kernel_size[1], tf.cast(sigma[1], images.dtype))
    along = _band(width, kernel_size[0], tf.cast(sigma[0], images.dtype))
    out = spatial.replace("h", "y").replace("w", "x")
    return tf.einsum(f"yh,...{spatial},xw->...{out}", down, images, along)


def _band(length: int, kernel_size: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
    """A matrix that blurs along a dimension: zero beyond half of the kernel's size."""
    tf.debugging.assert_less(
        kernel_size, 2 * length, "A Gaussian blur on the device has a kernel that is smaller than twice the image."
    )
    reach = tf.cast(kernel_size // 2, sigma.dtype)

    def weight(offset: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.abs(offset) <= reach, tf.exp(-0.5 * (offset / sigma) ** 2), 0.0)

    places = tf.range(length, dtype=sigma.dtype)
    whole = tf.reduce_sum(weight(tf.range(1 - length, length, dtype=sigma.dtype)))
    return weight(places[:, tf.newaxis] - places) / whole
