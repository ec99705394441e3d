"""Dropout with a reproducible seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.emulation import record_ignored

_INT32 = tf.int32


def dropout(
    x: Any,
    rate: float = 0.5,
    noise_shape: Sequence[int] | None = None,
    seed: Any = None,
    name: str | None = None,
    **kwargs: Any,
) -> tf.Tensor:
    """Sets elements to zero with probability `rate` and multiplies the others by `1 / (1 - rate)`.

    The backward pass uses the mask of the forward pass. Without a seed, every op and every execution of it draws
    another mask, from the seed of the device (`ipu.utils.reset_ipu_seed`).

    Args:
        x: float16, float32 or int32.
        rate: the probability that an element becomes zero, in [0, 1).
        noise_shape: of the mask: a length of 1 where it is to be the same along a dimension. By default the shape of x.
        seed: two whole numbers of 32 bits: the same seed and shape give the same mask.
        name: of the op.
        **kwargs: `ref`, which is accepted for compatibility: the backward pass always has the mask.

    Raises:
        ValueError: if the rate, the noise shape or the seed's shape is not as described.
        TypeError: for other keyword arguments.

    Example:
        >>> import tensorflow as tf
        >>> dropout(tf.ones([8]), rate=0.0).numpy().tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    record_ignored("dropout.ref", kwargs.pop("ref", None), "the backward pass always has the mask")
    if kwargs:
        raise TypeError(f"dropout() got an unexpected keyword argument {sorted(kwargs)[0]!r}")
    x = tf.convert_to_tensor(x)
    if rate >= 1.0 or rate < 0.0:
        raise ValueError(f"The rate must be in the range [0, 1), but was {rate}")
    _check_noise_shape(x, noise_shape)
    with tf.name_scope(name or "dropout"):
        return dropout_and_seed(x, 1 - rate, 1 / (1 - rate), noise_shape, seed)[0]


def dropout_and_seed(
    x: tf.Tensor, keep_probability: float, scale: float, noise_shape: Sequence[int] | None = None, seed: Any = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """As `dropout`, but also returns the `int32[2]` seed of the mask, given or drawn.

    Args:
        x: float16, float32 or int32.
        keep_probability: with which an element stays.
        scale: what elements that stay are multiplied by.
        noise_shape: as for `dropout`.
        seed: as for `dropout`.

    Raises:
        ValueError: if the seed is not of shape [2].
    """
    seed = new_seed() if seed is None else _checked_seed(seed)
    shape = list(noise_shape) if noise_shape else tf.shape(x)
    keep = tf.random.stateless_uniform(shape, seed) < keep_probability
    # Integers are scaled as floats: the scale need not be whole.
    wide = tf.cast(x, tf.float32) if x.dtype.is_integer else x
    kept = tf.where(keep, wide * tf.cast(scale, wide.dtype), tf.zeros_like(wide))
    return tf.cast(kept, x.dtype), seed


def new_seed() -> tf.Tensor:
    """An `int32[2]` seed, drawn from the device's own: each op and each execution gets another."""
    return tf.random.uniform([2], _INT32.min, _INT32.max, _INT32)


def _checked_seed(seed: Any) -> tf.Tensor:
    seed = tf.convert_to_tensor(seed)
    if seed.shape != [2]:
        raise ValueError(f"Expected the seed to have a shape [2], but got {seed.shape}.")
    return seed


def _check_noise_shape(x: tf.Tensor, noise_shape: Sequence[int] | None) -> None:
    if not noise_shape:
        return
    if x.shape.rank != len(noise_shape):
        raise ValueError("The length of noise_shape must equal the rank of x.")
    for length, noise in zip(x.shape.as_list(), noise_shape, strict=True):
        if length is not None and not tf.is_tensor(noise) and noise not in (1, length):
            raise ValueError(f"Dimension mismatch, {length} != {noise}.")
