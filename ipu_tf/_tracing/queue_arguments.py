"""Checks arguments that infeed and outfeed queues share: device ordinal, prefetch and buffer depth."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf._arguments.counts import as_integer, checked_integer


def checked_ordinal(ordinal: int | None) -> int:
    """Checks a queue's device ordinal; None means that of the strategy in scope, else 0.

    Raises:
        ValueError: for anything but a non-negative whole number.
    """
    if ordinal is None:
        return int(getattr(tf.distribute.get_strategy(), "_device_ordinal", 0))
    number = as_integer(ordinal)
    if number is None:
        raise ValueError(f"Device ordinal must be an integer. Received: {ordinal!r}.")
    if number < 0:
        raise ValueError(f"Device ordinal must be >= 0. Received: {number}.")
    return number


def checked_prefetch_depth(depth: Any) -> int:
    """Checks an infeed's prefetch depth: 1 to 255.

    Raises:
        TypeError: for anything but a whole number.
        ValueError: for one out of range.
    """
    number = checked_integer("prefetch_depth", depth)
    if number <= 0:
        raise ValueError(f"prefetch_depth must be greater than zero, but it is {number}")
    if number > 255:
        raise ValueError(f"prefetch_depth must be less than 256, but it is {number}")
    return number


def checked_buffer_depth(depth: Any) -> int:
    """Checks an outfeed's buffer depth: at least 1.

    Raises:
        TypeError: for anything but a whole number.
        ValueError: for one below 1.
    """
    number = checked_integer("buffer_depth", depth)
    if number < 1:
        raise ValueError(f"Outfeed buffer depth cannot be less than 1. Received: {number}.")
    return number
