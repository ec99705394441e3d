"""What 64-bit data becomes where it is fed as 32-bit data: the device has no float64, int64 and uint64."""

from __future__ import annotations

import logging
from collections.abc import Callable

import tensorflow as tf

from ipu_tf._state.once import first_time

_log = logging.getLogger("ipu_tf")
NARROW = {tf.float64: tf.float32, tf.int64: tf.int32, tf.uint64: tf.uint32}
"""The dtype that data of each 64-bit one is fed as."""


def fed(spec: tf.TensorSpec) -> tf.TensorSpec:
    """Returns the spec of what the device is fed for a tensor of data, as `narrowed` does."""
    narrow = NARROW.get(spec.dtype)
    return spec if narrow is None else tf.TensorSpec(spec.shape, narrow)


def narrowed(spec: tf.TensorSpec, on_cast: Callable[[str, str], None]) -> tf.TensorSpec:
    """Returns the spec of what the device is fed for a tensor of data.

    Args:
        spec: of the data.
        on_cast: called with the names of both dtypes if they differ.

    Example:
        >>> narrowed(tf.TensorSpec([2], tf.int64), print)
        int64 int32
        TensorSpec(shape=(2,), dtype=tf.int32, name=None)
    """
    narrow = fed(spec)
    if narrow.dtype != spec.dtype:
        on_cast(spec.dtype.name, narrow.dtype.name)
    return narrow


def warn_cast(was: str, becomes: str) -> None:
    """Warns once in a process that data of one dtype is fed as another."""
    if first_time("cast", was, becomes):
        _log.warning("ipu_tf: the device has no %s: such data is fed as %s.", was, becomes)
