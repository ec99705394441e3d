"""Arguments that infeed and outfeed queues share."""

from __future__ import annotations

import tensorflow as tf


def checked_ordinal(ordinal: int | None) -> int:
    """The device ordinal a queue was asked for; None means that of the strategy in scope, else 0.

    Raises:
        ValueError: for anything but a non-negative whole number.
    """
    if ordinal is None:
        return int(getattr(tf.distribute.get_strategy(), "_device_ordinal", 0))
    if not isinstance(ordinal, int):
        raise ValueError("Device ordinal must be an integer")
    if ordinal < 0:
        raise ValueError("Device ordinal must be >= 0")
    return ordinal
