"""Error bounds of programs in NumPy's float64, for results of lower precision.

A rounding error is at most the unit of the dtype times the value. A sum of n terms rounds n times: errors of random
signs add up like a random walk, so its bound grows with the root of n and with the sum of the terms' sizes (Higham and
Mary, "A new approach to probabilistic rounding error analysis", 2019). Sums and products of whole numbers that the
dtype holds are exact: there the bound is zero, and a single missing term shows.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

_CONFIDENCE = 8.0
"""Factor on the expected size of a sum's rounding error that is allowed."""


class OutOfRange(Exception):
    """A program whose values leave the range of its dtype, so that there is nothing to compare."""


@dataclasses.dataclass(frozen=True)
class Bounded:
    """An array, and how far each element may be off.

    Attributes:
        value: in float64.
        error: of the shape of `value`; 0 where it has to be met exactly.
        whole: whether all elements are whole numbers without error.
    """

    value: np.ndarray
    error: np.ndarray
    whole: bool = False


def exactly(value: Any) -> Bounded:
    """An input: an array, or a constant of the program."""
    array = np.asarray(value, np.float64)
    return Bounded(array, np.zeros_like(array), bool((array == np.round(array)).all()))


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Elements that an argmax chooses from."""

    among: Bounded
    axis: int

    def excess(self, found: np.ndarray) -> np.ndarray:
        """Distance of each chosen element below the largest, beyond rounding; at most 0 if it is right."""
        where = np.expand_dims(found.astype(np.int64), self.axis)
        value, error = (np.take_along_axis(a, where, self.axis) for a in (self.among.value, self.among.error))
        top, slack = self.among.value.max(self.axis, keepdims=True), self.among.error.max(self.axis, keepdims=True)
        return np.asarray(top - value - error - slack)


def bounded(x: Any) -> Bounded:
    return x if isinstance(x, Bounded) else exactly(x)


class Rounding:
    """Rounding of results of a dtype.

    Args:
        dtype: of the programs.
    """

    def __init__(self, dtype: np.dtype) -> None:
        real = dtype.kind == "f"
        self._unit = float(np.finfo(dtype).eps) if real else 0.0
        self._largest_whole = 2.0 ** (np.finfo(dtype).nmant + 1) if real else 2.0**31
        self.tiny = float(np.finfo(dtype).tiny) if real else 0.0
        self._largest = float(np.finfo(dtype).max) if real else 0.0

    def rounded(self, value: np.ndarray, error: Any, size: Any, terms: float = 1, whole: bool = False) -> Bounded:
        """A result whose terms have the total `size`, after rounding."""
        if whole and float(np.max(size, initial=0)) < self._largest_whole:
            return Bounded(value, np.zeros_like(value), True)
        growth = math.expm1(_CONFIDENCE * math.sqrt(terms) * self._unit)
        error = np.broadcast_to(error + growth * size + self.tiny, value.shape)
        if not float(np.max(size + error, initial=0)) < self._largest:  # NaN too
            raise OutOfRange
        return Bounded(value, error)
