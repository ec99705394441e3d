"""Checks for overflow where 64-bit data is converted to 32 bits for the device."""

from __future__ import annotations

import numpy as np

from ipu_tf.device.errors import DeviceError


class NumberOutOfRange(DeviceError, ValueError):
    """Raised if data has a number that is out of range of the device's dtype.

    Args:
        where: the feature, in words.
        value: the number.
        index: its place in the array.
        given: the dtype of the data.
        fed: the dtype that the device is fed.
    """

    def __init__(self, where: str, value: object, index: tuple[int, ...], given: np.dtype, fed: np.dtype) -> None:
        super().__init__(
            f"{where} must have numbers that {fed.name} has, {_range(fed)}: the device is fed {given.name} as "
            f"{fed.name}. Received: {value} at index {list(index)}. {_advice(fed)}"
        )


class ElementDtypeError(DeviceError, TypeError):
    """Raised if an infeed's element has a dtype that cannot be converted to that of the elements before it.

    Args:
        where: the feature, in words.
        given: its dtype.
        fed: the dtype of those before it.
    """

    def __init__(self, where: str, given: np.dtype, fed: np.dtype) -> None:
        super().__init__(
            f"{where} must be {fed.name}, which the program was compiled for. Received: {given.name}. Give all "
            "elements of the data the same dtype."
        )


def check_numbers(values: np.ndarray, fed: np.dtype, where: str) -> None:
    """Checks that an array can be converted to another dtype without overflow.

    Whole numbers have to be in range; finite floating-point numbers have to stay finite. It takes the least and the
    largest number of the array, and no memory.

    Args:
        values: the array.
        fed: the dtype that it is to have.
        where: what it is, for the error.

    Raises:
        NumberOutOfRange: names the first number that `fed` does not have.
        ElementDtypeError: for fractions where whole numbers are wanted, and the like.
    """
    if values.dtype == fed or not values.size:
        return
    if not _same_kind(values.dtype, fed):
        raise ElementDtypeError(where, values.dtype, fed)
    if fed.kind not in "iuf" or np.can_cast(values.dtype, fed, "safe"):
        return
    wrong = _beyond(values, fed)
    if wrong is not None:
        index = tuple(int(place) for place in np.unravel_index(int(np.argmax(wrong)), values.shape))
        raise NumberOutOfRange(where, values[index], index, values.dtype, fed)


def _same_kind(given: np.dtype, fed: np.dtype) -> bool:
    """Tests whether a conversion keeps the kind of number: integers to integers or floats, floats to floats."""
    order = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
    # Formats beyond NumPy's own, such as bfloat16, are of kind V.
    return order.get(given.kind, 2) <= order.get(fed.kind, 2)


def _beyond(values: np.ndarray, fed: np.dtype) -> np.ndarray | None:
    """Returns a mask of the numbers out of a dtype's range; None if there are none."""
    if fed.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            most = np.finfo(fed).max
            if values.min() >= -most and values.max() <= most:
                return None
            wrong = np.isinf(values.astype(fed)) & np.isfinite(values)
            return wrong if wrong.any() else None
    limits = np.iinfo(fed)
    if limits.min <= int(values.min()) and int(values.max()) <= limits.max:
        return None
    # NumPy compares numbers of different signedness exactly.
    return (values < limits.min) | (values > limits.max)


def _range(fed: np.dtype) -> str:
    limits = np.finfo(fed) if fed.kind == "f" else np.iinfo(fed)
    return f"{limits.min} to {limits.max}"


def _advice(fed: np.dtype) -> str:
    if fed.kind == "f":
        return "Scale the data, or leave such samples out."
    return (
        "Map such numbers to smaller ones before they are fed: hashed ids modulo a number of buckets "
        "(`ids % buckets`), ids by a table, times as differences or as float32."
    )
