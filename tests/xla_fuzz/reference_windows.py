"""Reference convolutions and poolings in NumPy's float64, with an error bound for each result."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.xla_fuzz.bounds import Bounded, Rounding
from tests.xla_fuzz.ops import Window


class WindowReference(Rounding):
    """The part of `Ops` that moves windows over `[batch, *spatial, channels]`."""

    def convolution(self, x: Any, kernel: Any, window: Window, groups: int) -> Bounded:
        shape = (x.value.shape[0], *window.output(x.value.shape[1:-1]), kernel.value.shape[-1])

        def taken(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            result = np.zeros(shape)
            for ins, outs in _channels(a.shape[-1], b.shape[-1], groups):
                padded = _padded(a[..., ins], window)
                for tap, place in _taps(window, shape[1:-1]):
                    result[..., outs] += padded[place] @ b[_at(tap, outs)]
            return result

        return self._bilinear(taken, x, kernel, math.prod(kernel.value.shape[:-1]))

    def input_gradient(
        self, kernel: Any, gradient: Any, window: Window, groups: int, shape: tuple[int, ...]
    ) -> Bounded:
        def spread(b: np.ndarray, g: np.ndarray) -> np.ndarray:
            result: Any = _padded(np.zeros(shape), window)
            for ins, outs in _channels(shape[-1], b.shape[-1], groups):
                for tap, place in _taps(window, g.shape[1:-1]):
                    result[(*place, ins)] += g[..., outs] @ b[_at(tap, outs)].T
            return _unpadded(result, window, shape)

        return self._bilinear(spread, kernel, gradient, math.prod((*window.size, gradient.value.shape[-1])))

    def kernel_gradient(self, x: Any, gradient: Any, window: Window, groups: int, shape: tuple[int, ...]) -> Bounded:
        def taken(a: np.ndarray, g: np.ndarray) -> np.ndarray:
            result = np.zeros(shape)
            for ins, outs in _channels(a.shape[-1], shape[-1], groups):
                padded = _padded(a[..., ins], window)
                for tap, place in _taps(window, g.shape[1:-1]):
                    result[_at(tap, outs)] = np.tensordot(padded[place], g[..., outs], (_leading(a),) * 2)
            return result

        return self._bilinear(taken, x, gradient, math.prod(gradient.value.shape[:-1]))

    def _bilinear(self, product: Any, a: Bounded, b: Bounded, terms: int) -> Bounded:
        size_a, size_b = np.abs(a.value), np.abs(b.value)
        error: Any = 0.0
        if a.error.any() or b.error.any():
            error = product(size_a, b.error) + product(a.error, size_b + b.error)
        whole = a.whole and b.whole
        return self.rounded(product(a.value, b.value), error, product(size_a, size_b), terms, whole)

    def max_pool(self, x: Any, window: Window) -> Bounded:
        shape = window.output(x.value.shape[1:-1])
        value, error = _padded(x.value, window, -np.inf), _padded(x.error, window)
        taps = [place for _, place in _taps(window, shape)]
        largest = np.maximum.reduce([value[place] for place in taps])
        return Bounded(largest, np.maximum.reduce([error[place] for place in taps]), x.whole)

    def average_pool(self, x: Any, window: Window) -> Bounded:
        shape = window.output(x.value.shape[1:-1])
        taps = [place for _, place in _taps(window, shape)]
        padded = [_padded(a, window) for a in (x.value, x.error, np.abs(x.value), np.ones_like(x.value))]
        sums: list[Any] = [sum(a[place] for place in taps) for a in padded]
        value, error, size, count = sums
        return self.rounded(value / count, error / count, size / count, len(taps))

    def average_pool_gradient(self, gradient: Any, window: Window, shape: tuple[int, ...]) -> Bounded:
        def spread(g: np.ndarray) -> np.ndarray:
            result = _padded(np.zeros(shape), window)
            for _, place in _taps(window, g.shape[1:-1]):
                result[place] += g
            return _unpadded(result, window, shape)

        ones = _padded(np.ones(shape), window)
        count: Any = sum(ones[place] for _, place in _taps(window, gradient.value.shape[1:-1]))
        arrays = (gradient.value, gradient.error, np.abs(gradient.value))
        value, error, size = (spread(array / count) for array in arrays)
        return self.rounded(value, error, size, math.prod(window.size))


def _at(tap: tuple[int, ...], features: slice) -> Any:
    """The matrix of a kernel that one element of the window is multiplied with."""
    return (*tap, slice(None), features)


def _leading(array: np.ndarray) -> list[int]:
    return list(range(array.ndim - 1))


def _channels(inputs: int, outputs: int, groups: int) -> list[tuple[slice, slice]]:
    ins, outs = inputs // groups, outputs // groups
    return [(slice(g * ins, (g + 1) * ins), slice(g * outs, (g + 1) * outs)) for g in range(groups)]


def _padded(array: np.ndarray, window: Window, value: float = 0.0) -> np.ndarray:
    return np.pad(array, ((0, 0), *window.padding, (0, 0)), constant_values=value)


def _unpadded(array: np.ndarray, window: Window, shape: tuple[int, ...]) -> np.ndarray:
    spatial = (slice(low, low + n) for (low, _), n in zip(window.padding, shape[1:-1], strict=True))
    return array[(slice(None), *spatial)]


def _taps(window: Window, output: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each element of the window, and which elements of a padded input it meets."""
    for tap in itertools.product(*(range(k) for k in window.size)):
        axes = zip(tap, window.dilation, window.strides, output, strict=True)
        spatial = (slice(t * apart, t * apart + (n - 1) * stride + 1, stride) for t, apart, stride, n in axes)
        yield tap, (slice(None), *spatial)
