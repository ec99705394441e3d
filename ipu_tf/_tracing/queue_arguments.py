"""Tables and checks of the arguments of infeed and outfeed queues: device ordinal, prefetch and buffer depth."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf._arguments.counts import as_integer, checked_integer
from ipu_tf._config.argument_table import Argument, ArgumentTable
from ipu_tf._config.treatment import modelled, no_effect
from ipu_tf._config.types import FLAG, integer

_MOST_PREFETCHED = 255
_BUFFERED = no_effect("The emulator stages elements in chunks of its own; results do not depend on it.")
_LATENCY = no_effect("There is no transfer between host and IPU whose latency it could change.")
_ORDINAL = modelled("Programs of that device read or write the queue.")


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
    if number > _MOST_PREFETCHED:
        raise ValueError(f"prefetch_depth must be less than {_MOST_PREFETCHED + 1}, but it is {number}")
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


_DEVICE = Argument(
    "device_ordinal",
    integer(0, None),
    None,
    "The `/device:IPU:<ordinal>` of the queue; None for that of the strategy in scope, else 0.",
    _ORDINAL,
    checked_ordinal,
)
_OPTIMISE = Argument("optimise_latency", FLAG, False, "Whether latency counts more than throughput.", _LATENCY)
INFEED = ArgumentTable(
    "IPUInfeedQueue",
    (
        _DEVICE,
        Argument(
            "prefetch_depth",
            integer(1, _MOST_PREFETCHED),
            None,
            "How many elements are prefetched; None for 3.",
            _BUFFERED,
            checked_prefetch_depth,
        ),
        _OPTIMISE,
    ),
)
OUTFEED = ArgumentTable(
    "IPUOutfeedQueue",
    (
        _DEVICE,
        Argument(
            "buffer_depth", integer(1, None), 3, "How many elements are buffered.", _BUFFERED, checked_buffer_depth
        ),
        _OPTIMISE,
    ),
)
