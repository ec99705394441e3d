"""`tf.image.resize` by nearest pixels, and gradients of bilinear sizes, with the numbers of TensorFlow's CPU kernels.

XLA resizes integers by products of floats, has no gradient of the nearest pixel, and gives the gradient of a
bilinear size in float32 where the image is shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def resize_nearest_neighbor(
    images: Any, size: Any, align_corners: bool = False, half_pixel_centers: bool = False, name: str | None = None
) -> tf.Tensor:
    """Takes the nearest pixels as `tf.raw_ops.ResizeNearestNeighbor` does; the arguments are its.

    Images or sizes that are not known while the program is traced are left to XLA.
    """
    images, lengths = tf.convert_to_tensor(images), tf.get_static_value(size)
    if lengths is None or not images.shape[1:3].is_fully_defined() or 0 in (*images.shape[1:3], *lengths):
        options = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
        return tf.raw_ops.ResizeNearestNeighbor(images=images, size=size, name=name, **options)
    for axis, length in zip((1, 2), lengths, strict=True):
        places = _nearest(images.shape[axis], int(length), align_corners, half_pixel_centers)
        images = _taken(images, places, axis)
    return tf.identity(images, name or "ResizeNearestNeighbor")


def _nearest(given: int, wanted: int, align_corners: bool, half_pixel_centers: bool) -> np.ndarray:
    """Returns the place of each pixel's source, computed in float32 as TensorFlow's kernel does."""
    between_corners = align_corners and wanted > 1
    scale = np.float32(given - between_corners) / np.float32(wanted - between_corners)
    exact = (np.arange(wanted, dtype=np.float32) + np.float32(0.5 * half_pixel_centers)) * scale
    # Halves are rounded up, as C does, which NumPy's `round` does not.
    places = np.floor(exact.astype(np.float64) + 0.5 * align_corners)
    return np.minimum(places.astype(np.int32), given - 1)


def _taken(images: tf.Tensor, places: np.ndarray, axis: int) -> tf.Tensor:
    """Gathers along an axis; pixels that are all repeated as often are not scattered in the gradient, but summed."""
    given = images.shape[axis]
    times, rest = divmod(len(places), given)
    if not rest and np.array_equal(places, np.repeat(np.arange(given), times)):
        return tf.repeat(images, times, axis)
    return tf.gather(images, places, axis=axis)


def resize_bilinear_grad(
    grads: Any,
    original_image: Any,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Computes the gradient of a bilinear size as `tf.raw_ops.ResizeBilinearGrad` does; the arguments are its."""
    image = tf.convert_to_tensor(original_image)
    gradient = tf.raw_ops.ResizeBilinearGrad(
        grads=grads,
        original_image=tf.cast(image, tf.float32),
        align_corners=align_corners,
        half_pixel_centers=half_pixel_centers,
        name=name,
    )
    return tf.cast(gradient, image.dtype)


OPS: dict[str, Callable[..., Any]] = {
    "resize_bilinear_grad": resize_bilinear_grad,
    "resize_nearest_neighbor": resize_nearest_neighbor,
}
"""By the names of TensorFlow's functions."""
