"""`ImageProjectiveTransformV3` made of gathers: rotated, shifted and zoomed images, which XLA has no kernel for.

Values and gradients are those of TensorFlow's own op, whose gradient warps back by the inverse transform.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.tensorflow.tf_values import inferred_shape


def image_projective_transform(
    images: Any,
    transforms: Any,
    output_shape: Any,
    interpolation: str,
    fill_mode: str = "CONSTANT",
    fill_value: Any = 0.0,
    name: str | None = None,
) -> tf.Tensor:
    """Warps images as `tf.raw_ops.ImageProjectiveTransformV3` does; the arguments are its.

    Args:
        images: of shape (batch, height, width, channels).
        transforms: eight numbers for each image, or for all: from places of the output to places of the image.
        output_shape: height and width of the output, known when the program is made.
        interpolation: "NEAREST" or "BILINEAR".
        fill_mode: what lies beyond the edge: "CONSTANT", "REFLECT", "WRAP" or "NEAREST".
        fill_value: for "CONSTANT".
        name: of the op.
    """
    images = tf.convert_to_tensor(images)
    size = inferred_shape(output_shape)
    if not (images.shape.is_fully_defined() and size.is_fully_defined()):
        raise ValueError(
            "ImageProjectiveTransformV3 on the device needs shapes that are known when the program is made. Received: "
            f"images of shape {images.shape}, and `output_shape` {size}."
        )

    @tf.custom_gradient
    def warp(images: tf.Tensor, transforms: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[Any, None]]]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
            height, width = images.shape[1:3]
            back = _inverse(transforms)
            return _warped(upstream, back, height, width, interpolation, fill_mode, 0.0), None

        return _warped(images, transforms, size[0], size[1], interpolation, fill_mode, fill_value), gradient

    with tf.name_scope(name or "ImageProjectiveTransformV3"):
        result: tf.Tensor = warp(images, tf.convert_to_tensor(transforms, tf.float32))
        return result


def _inverse(transforms: tf.Tensor) -> tf.Tensor:
    matrices = tf.reshape(tf.concat([transforms, tf.ones_like(transforms[:, :1])], 1), [-1, 3, 3])
    flat = tf.reshape(tf.linalg.inv(matrices), [-1, 9])
    return flat[:, :8] / flat[:, 8:]


def _warped(
    images: tf.Tensor,
    transforms: tf.Tensor,
    height: int,
    width: int,
    interpolation: str,
    fill_mode: str,
    fill_value: Any,
) -> tf.Tensor:
    rows = tf.range(height, dtype=tf.float32)[tf.newaxis, :, tf.newaxis]
    columns = tf.range(width, dtype=tf.float32)[tf.newaxis, tf.newaxis, :]
    t = [transforms[:, place, tf.newaxis, tf.newaxis] for place in range(8)]
    projection = t[6] * columns + t[7] * rows + 1.0
    known = tf.where(projection == 0.0, tf.ones_like(projection), projection)
    shape = [images.shape[0], height, width]
    edge = _EDGES[fill_mode]
    x = tf.broadcast_to(edge((t[0] * columns + t[1] * rows + t[2]) / known, int(images.shape[2])), shape)
    y = tf.broadcast_to(edge((t[3] * columns + t[4] * rows + t[5]) / known, int(images.shape[1])), shape)
    fill = tf.cast(fill_value, images.dtype)
    warped = _nearest(images, y, x, fill) if interpolation == "NEAREST" else _bilinear(images, y, x, fill)
    return tf.where(tf.broadcast_to(projection == 0.0, shape)[..., tf.newaxis], fill, warped)


def _pixels(images: tf.Tensor, y: tf.Tensor, x: tf.Tensor, fill: tf.Tensor) -> tf.Tensor:
    """Reads pixels at whole places; the fill value outside of the image."""
    height, width = images.shape[1:3]
    inside = (y >= 0.0) & (y <= height - 1.0) & (x >= 0.0) & (x <= width - 1.0)
    row = tf.cast(tf.clip_by_value(y, 0.0, height - 1.0), tf.int32)
    column = tf.cast(tf.clip_by_value(x, 0.0, width - 1.0), tf.int32)
    flat = tf.reshape(images, [images.shape[0], height * width, images.shape[3]])
    read = tf.gather(flat, row * width + column, axis=1, batch_dims=1)
    return tf.where(inside[..., tf.newaxis], read, fill)


def _nearest(images: tf.Tensor, y: tf.Tensor, x: tf.Tensor, fill: tf.Tensor) -> tf.Tensor:
    def rounded(place: tf.Tensor) -> tf.Tensor:
        return tf.sign(place) * tf.floor(tf.abs(place) + 0.5)  # half a pixel is rounded away from zero

    return _pixels(images, rounded(y), rounded(x), fill)


def _bilinear(images: tf.Tensor, y: tf.Tensor, x: tf.Tensor, fill: tf.Tensor) -> tf.Tensor:
    top, left = tf.floor(y), tf.floor(x)
    right = (x - left)[..., tf.newaxis]
    down = (y - top)[..., tf.newaxis]

    def line(row: tf.Tensor) -> tf.Tensor:
        first, second = (tf.cast(_pixels(images, row, at, fill), tf.float32) for at in (left, left + 1.0))
        return (1.0 - right) * first + right * second

    return tf.cast((1.0 - down) * line(top) + down * line(top + 1.0), images.dtype)


def _reflected(place: tf.Tensor, length: int) -> tf.Tensor:
    if length <= 1:
        return tf.zeros_like(place)
    twice = 2.0 * length
    below = twice * tf.floor(-place / twice) + place
    below = tf.where(below < -length, below + twice, -below - 1.0)
    above = place - twice * tf.floor(place / twice)
    above = tf.where(above >= length, twice - above - 1.0, above)
    return _clamped(tf.where(place < 0.0, below, tf.where(place > length - 1.0, above, place)), length)


def _wrapped(place: tf.Tensor, length: int) -> tf.Tensor:
    if length <= 1:
        return tf.zeros_like(place)
    below = place + length * (tf.floor(-place / (length - 1.0)) + 1.0)
    above = place - length * tf.floor(place / (length - 1.0))
    return _clamped(tf.where(place < 0.0, below, tf.where(place > length - 1.0, above, place)), length)


def _clamped(place: tf.Tensor, length: int) -> tf.Tensor:
    return tf.clip_by_value(place, 0.0, length - 1.0)


_EDGES: dict[str, Callable[[tf.Tensor, int], tf.Tensor]] = {
    "CONSTANT": lambda place, length: place,
    "NEAREST": _clamped,
    "REFLECT": _reflected,
    "WRAP": _wrapped,
}
