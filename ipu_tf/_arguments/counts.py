"""Checks arguments that are counts: steps, epochs, micro-batches, replicas, repetitions."""

from __future__ import annotations

import operator
from typing import Any

import tensorflow as tf

INT32_MAX = 2**31 - 1
"""The largest number that the device's counters have."""


def as_integer(value: Any) -> int | None:
    """Converts an int, NumPy integer, or eager tensor or variable of rank 0 to a Python int; None for anything else.

    A bool is none, nor is a float without a fraction or a text of digits.

    >>> as_integer(3), as_integer(2.0), as_integer("4"), as_integer(True)
    (3, None, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value.read_value() if isinstance(value, tf.Variable) else value)
    except TypeError:
        return None


def checked_integer(name: str, value: Any) -> int:
    """Checks that an argument is an integer of any range, and returns it as a Python int.

    Args:
        name: of the argument, for the error.
        value: an int, a NumPy integer, or an eager tensor or variable of rank 0.

    Raises:
        TypeError: for anything but a whole number.
    """
    number = as_integer(value)
    if number is None:
        raise TypeError(f"`{name}` must be an integer. Received: {value!r} (of type {type(value).__name__}).")
    return number


def checked_count(name: str, value: Any, least: int = 1, most: int = INT32_MAX) -> int:
    """Checks an argument that is a count, and returns it as a Python int.

    Args:
        name: of the argument, for the error.
        value: an int, a NumPy integer, or an eager tensor or variable of rank 0.
        least: the smallest number that makes sense.
        most: the largest.

    Raises:
        TypeError: for anything but a whole number.
        ValueError: for one out of range.

    >>> checked_count("epochs", 3)
    3
    >>> checked_count("epochs", -2)
    Traceback (most recent call last):
    ValueError: `epochs` must be a positive integer. Received: -2.
    """
    number = as_integer(value)
    if number is not None and least <= number <= most:
        return number
    wanted = _wanted(name, least)
    if number is None:
        raise TypeError(f"{wanted}. Received: {value!r} (of type {type(value).__name__}).")
    raise ValueError(f"{wanted}{f', at most {most}' if number > most else ''}. Received: {number}.")


def optional_count(name: str, value: Any, least: int = 1) -> int | None:
    """Checks a count as `checked_count` does, or returns None for None."""
    return None if value is None else checked_count(name, value, least)


def checked_iterations(name: str, value: Any) -> Any:
    """Checks a number of iterations: returns an int where it is known, else the tensor that holds it at run time.

    Args:
        name: of the argument, for the error.
        value: an int, a NumPy integer or a scalar tensor.

    Raises:
        TypeError: for anything but a whole number; for a tensor that is not int32 and is only known at run time, whose
            value might not fit into the device's counter.
        ValueError: for a number below 0, or of more than 32 bits.
    """
    constant = tf.get_static_value(value) if isinstance(value, tf.Tensor) else value
    if constant is not None or not isinstance(value, tf.Tensor):
        return checked_count(name, constant, least=0)
    if value.dtype.is_integer and value.dtype.max <= INT32_MAX and value.shape.rank in (0, None):
        return value if value.dtype == tf.int32 else tf.cast(value, tf.int32)
    raise TypeError(
        f"`{name}` must be an integer, or an int32 scalar tensor, since the device counts with 32 bits: cast it, e.g. "
        f"tf.cast(n, tf.int32). Received: {value.dtype.name}{value.shape}."
    )


def _wanted(name: str, least: int) -> str:
    return f"`{name}` must be a positive integer" if least == 1 else f"`{name}` must be an integer of at least {least}"
