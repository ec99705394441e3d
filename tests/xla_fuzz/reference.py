"""Reference results of fuzzed programs in NumPy's float64, with error bounds (see `bounds`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.xla_fuzz.bounds import Bounded, Chosen, bounded
from tests.xla_fuzz.reference_windows import WindowReference

_FUNCTION_ROUNDINGS = 16.0
"""Roundings that an elementary function is allowed."""


class Reference(WindowReference):
    """`Ops` on `Bounded` arrays."""

    def shape(self, x: Any) -> tuple[int, ...]:
        return bounded(x).value.shape

    def matmul(self, a: Any, b: Any) -> Bounded:
        a, b = bounded(a), bounded(b)
        error = np.abs(a.value) @ b.error + a.error @ (np.abs(b.value) + b.error)
        size = np.abs(a.value) @ np.abs(b.value)
        return self.rounded(a.value @ b.value, error, size, a.value.shape[-1], a.whole and b.whole)

    def add(self, a: Any, b: Any) -> Bounded:
        a, b = bounded(a), bounded(b)
        return self.rounded(
            a.value + b.value, a.error + b.error, np.abs(a.value) + np.abs(b.value), 1, a.whole and b.whole
        )

    def subtract(self, a: Any, b: Any) -> Bounded:
        b = bounded(b)
        return self.add(a, Bounded(-b.value, b.error, b.whole))

    def multiply(self, a: Any, b: Any) -> Bounded:
        a, b = bounded(a), bounded(b)
        error = np.abs(a.value) * b.error + a.error * (np.abs(b.value) + b.error)
        product = a.value * b.value
        return self.rounded(product, error, np.abs(product), 1, a.whole and b.whole)

    def divide(self, a: Any, b: Any) -> Bounded:
        a, b = bounded(a), bounded(b)
        least = np.maximum(np.abs(b.value) - b.error, self.tiny)
        quotient = a.value / b.value
        return self.rounded(quotient, (a.error + np.abs(quotient) * b.error) / least, np.abs(quotient))

    def maximum(self, a: Any, b: Any) -> Bounded:
        a, b = bounded(a), bounded(b)
        return Bounded(np.maximum(a.value, b.value), np.maximum(a.error, b.error), a.whole and b.whole)

    def absolute(self, x: Any) -> Bounded:
        return Bounded(np.abs(x.value), x.error, x.whole)

    def exp(self, x: Any) -> Bounded:
        value = np.exp(x.value)
        return self._function(value, value * np.expm1(x.error))

    def log(self, x: Any) -> Bounded:
        least = np.maximum(x.value - x.error, self.tiny)
        value = np.log(x.value)
        return self._function(value, x.error / least, np.abs(value) + 1)

    def sqrt(self, x: Any) -> Bounded:
        value = np.sqrt(x.value)
        return self._function(value, np.minimum(x.error / np.maximum(value, self.tiny), np.sqrt(x.error)))

    def tanh(self, x: Any) -> Bounded:
        return self._function(np.tanh(x.value), x.error)

    def _function(self, value: np.ndarray, error: np.ndarray, size: np.ndarray | None = None) -> Bounded:
        return self.rounded(value, error, np.abs(value) if size is None else size, _FUNCTION_ROUNDINGS)

    def broadcast(self, x: Any, shape: tuple[int, ...]) -> Bounded:
        return Bounded(np.broadcast_to(x.value, shape), np.broadcast_to(x.error, shape), x.whole)

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Bounded:
        return Bounded(x.value.reshape(shape), x.error.reshape(shape), x.whole)

    def transpose(self, x: Any, order: tuple[int, ...]) -> Bounded:
        return Bounded(x.value.transpose(order), x.error.transpose(order), x.whole)

    def sum(self, x: Any, axes: tuple[int, ...], keep: bool = False) -> Bounded:
        terms = math.prod(x.value.shape[axis] for axis in axes)
        value, error, size = (a.sum(axes, keepdims=keep) for a in (x.value, x.error, np.abs(x.value)))
        return self.rounded(value, error, size, terms, x.whole)

    def max(self, x: Any, axes: tuple[int, ...], keep: bool = False) -> Bounded:
        return Bounded(x.value.max(axes, keepdims=keep), x.error.max(axes, keepdims=keep), x.whole)

    def cumulative_sum(self, x: Any, axis: int) -> Bounded:
        value, error, size = (np.cumsum(a, axis) for a in (x.value, x.error, np.abs(x.value)))
        return self.rounded(value, error, size, x.value.shape[axis], x.whole)

    def segment_sum(self, x: Any, segments: Any, count: int) -> Bounded:
        def summed(array: np.ndarray) -> np.ndarray:
            result = np.zeros((count, *array.shape[1:]))
            np.add.at(result, segments.value.astype(np.int64), array)
            return result

        return self.rounded(summed(x.value), summed(x.error), summed(np.abs(x.value)), len(x.value), x.whole)

    def argmax(self, x: Any, axis: int) -> Any:
        return Chosen(x, axis)
