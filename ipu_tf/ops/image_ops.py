"""`normalise_image`: normalises image channels and adds a fourth."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_CHANNELS = 3
_PADDED_CHANNELS = 4


def normalise_image(
    image: Any, channel_offsets: Any, channel_scales: Any, scale: float = 1, name: str | None = None
) -> tf.Tensor:
    """Normalises each channel as `(image * scale - channel_offset) * channel_scale` and adds a fourth channel of zeros.

    Args:
        image: `[..., 3]`, `uint8`, `float16` or `float32`.
        channel_offsets: three numbers; cast to the result's dtype.
        channel_scales: three numbers; cast to the result's dtype.
        scale: what every element is multiplied by first.
        name: of the op.

    Returns:
        `[..., 4]`, of the image's dtype; `float16` for a `uint8` image.

    Raises:
        TypeError: if the image has another dtype.
        tf.errors.InvalidArgumentError: if the image, the offsets or the scales do not have three channels.

    Example:
        >>> import tensorflow as tf
        >>> normalise_image(tf.ones([1, 1, 3]), [0.0, 1.0, 2.0], [1.0, 1.0, 3.0]).numpy().tolist()
        [[[1.0, 0.0, -3.0, 0.0]]]
    """
    image = tf.convert_to_tensor(image)
    if image.dtype not in (tf.float16, tf.float32, tf.uint8):
        raise TypeError("The input `image` to `normalise_image` must be either float16, float32 or uint8.")
    dtype = tf.float16 if image.dtype == tf.uint8 else image.dtype
    with tf.name_scope(name or "normalise_image"):
        offsets, scales = (tf.cast(values, dtype) for values in (channel_offsets, channel_scales))
        _check_channels(image, offsets, scales)
        normalised = (tf.cast(image, dtype) * tf.cast(scale, dtype) - offsets) * scales
        padding = [[0, 0]] * (image.shape.rank - 1) + [[0, _PADDED_CHANNELS - _CHANNELS]]
        return tf.pad(normalised, padding)


def _check_channels(image: tf.Tensor, offsets: tf.Tensor, scales: tf.Tensor) -> None:
    channels = image.shape.as_list()[-1]
    if channels != _CHANNELS:
        raise _invalid(f"The image has {channels} channels, expected 3.")
    for name, values in (("offsets", offsets), ("scales", scales)):
        count = values.shape.as_list()[0]
        if count != channels:
            raise _invalid(
                f"The channel_{name} must be the same size as the number of image channels {channels}, but was {count}"
            )


def _invalid(message: str) -> tf.errors.InvalidArgumentError:
    return tf.errors.InvalidArgumentError(None, None, message)
