"""Raw ops for dropout with its seed, under the names of Graphcore's plugin.

Their `rate` is the probability that an element stays. `reference` is Graphcore's tie between a forward op and its
gradient; here the mask follows from the seed alone, and the reference is the seed once more.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.poplar.refusal import refuse_others


def ipu_dropout(
    input: Any,  # noqa: A002 - the raw op's name
    rate: float,
    scale: float,
    noise_shape: Sequence[int] | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Dropout whose seed is drawn from the device's.

    Args:
        input: float16, float32 or int32.
        rate: the probability that an element stays.
        scale: what elements that stay are multiplied by.
        noise_shape: of the mask; by default that of the input.
        name: for the ops.

    Returns:
        The output, the `int32[2]` seed of the mask, and the reference.
    """
    return _dropout(input, None, rate, scale, noise_shape, name)


def ipu_dropout_no_ref(
    input: Any,  # noqa: A002
    rate: float,
    scale: float,
    noise_shape: Sequence[int] | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """`ipu_dropout` without the reference."""
    return _dropout(input, None, rate, scale, noise_shape, name)[:2]


def ipu_dropout_with_seed(
    input: Any,  # noqa: A002
    seed: Any,
    rate: float,
    scale: float,
    noise_shape: Sequence[int] | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """`ipu_dropout` with an `int32[2]` seed given: the same one gives the same mask.

    Raises:
        ValueError: if the seed is not of shape [2].
    """
    return _dropout(input, seed, rate, scale, noise_shape, name)


def ipu_dropout_with_seed_no_ref(
    input: Any,  # noqa: A002
    seed: Any,
    rate: float,
    scale: float,
    noise_shape: Sequence[int] | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """`ipu_dropout_with_seed` without the reference."""
    return _dropout(input, seed, rate, scale, noise_shape, name)[:2]


def ipu_dropout_with_seed_and_reference(
    input: Any,  # noqa: A002
    seed: Any,
    reference: Any,
    rate: float,
    scale: float,
    noise_shape: Sequence[int] | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The gradient of `ipu_dropout`: applies the mask of the forward op, by its seed, to other values."""
    return _dropout(input, seed, rate, scale, noise_shape, name)[:2]


def _dropout(
    value: Any, seed: Any, rate: float, scale: float, noise_shape: Sequence[int] | None, name: str | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    with tf.name_scope(name or "IpuDropout"):
        rand_ops = importlib.import_module("ipu_tf.ops.rand_ops")
        output, used = rand_ops.dropout_and_seed(tf.convert_to_tensor(value), rate, scale, noise_shape, seed)
        return output, used, tf.identity(used)


__getattr__ = refuse_others(__name__, "this raw op of Graphcore's plugin is not emulated. Use ipu.rand_ops.")
