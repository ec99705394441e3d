"""Checks the dtype of what replicas or shards average."""

from __future__ import annotations

import tensorflow as tf


def check_averaged(wanted_by: str, dtype: tf.DType) -> None:
    """Checks that tensors of a dtype have a mean of the same dtype: whole numbers need not.

    Args:
        wanted_by: the name of the op, for the message.
        dtype: of the tensors.

    Raises:
        TypeError: if it is neither of floating-point nor of complex numbers.

    Example:
        >>> check_averaged("cross_replica_mean", tf.int32)
        Traceback (most recent call last):
        TypeError: cross_replica_mean averages floating-point numbers. Received: int32. Cast them first: `tf.cast(x, \
tf.float32)`.
    """
    if not (dtype.is_floating or dtype.is_complex):
        raise TypeError(
            f"{wanted_by} averages floating-point numbers. Received: {dtype.name}. Cast them first: "
            "`tf.cast(x, tf.float32)`."
        )
