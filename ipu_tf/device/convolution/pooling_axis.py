"""Pooling windows along one axis: reduction, selection of elements, scatter of gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Compare = Callable[[jax.Array, jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class AxisWindows:
    """Windows of `size` elements, `stride` apart, over `length` elements padded by `low` and `high`.

    Negative padding crops.
    """

    length: int
    size: int
    stride: int
    low: int
    high: int

    @property
    def count(self) -> int:
        """Returns the number of windows."""
        return max(0, (self.length + self.low + self.high - self.size) // self.stride + 1)

    @property
    def is_trivial(self) -> bool:
        """Tests whether each element is a window by itself."""
        return (self.size, self.stride, self.low, self.high) == (1, 1, 0, 0)

    def reduce(self, padded: jax.Array, axis: int, combine: Compare) -> jax.Array:
        """Reduces each window of a padded array."""
        taps = self._taps(padded, axis)
        total = next(taps)
        for tap in taps:
            total = combine(total, tap)
        return total

    def _taps(self, padded: jax.Array, axis: int) -> Iterator[jax.Array]:
        """Returns, for each position in a window, the elements of all windows at it."""
        span = (self.count - 1) * self.stride + 1
        for place in range(self.size):
            yield lax.slice_in_dim(padded, place, place + span, self.stride, axis)

    def select(self, array: jax.Array, axis: int, keep: Compare) -> tuple[jax.Array, jax.Array]:
        """Returns the selected element of each window and its position in the window, -1 where all is padding.

        An element is kept against a later one where `keep` says so of the two.
        """
        taps = self._taps(self._padded(array, axis, self.low, self.high), axis)
        best = next(taps)
        seen = self._inside(0)
        first = np.where(seen, 0, -1).astype(self._place_type)
        place = jnp.broadcast_to(self._along(first, axis, best.ndim), best.shape)
        for number, tap in enumerate(taps, start=1):
            inside = self._inside(number)
            kept = keep(best, tap)
            if not (seen.all() and inside.all()):
                # A place in the padding is never taken, and the first one outside of it always is.
                kept = (kept & self._along(seen, axis, best.ndim)) | self._along(~inside, axis, best.ndim)
            best = jnp.where(kept, best, tap)
            place = jnp.where(kept, place, self._place_type.type(number))
            seen = seen | inside
        return best, place

    @property
    def _place_type(self) -> np.dtype:
        return np.dtype(np.int8 if self.size <= 128 else np.int32)

    def _inside(self, place: int) -> np.ndarray:
        """Tests, for each window, whether its element at `place` lies inside of the array."""
        index = np.arange(self.count) * self.stride + place - self.low
        return (index >= 0) & (index < self.length)

    def scatter(self, source: jax.Array, place: jax.Array, axis: int) -> jax.Array:
        """Adds the elements of `source`, one for each window, at the windows' selected positions.

        Element q * stride + r of the padded axis is at place r + m * stride of window q - m. So for each m
        all sources, m windows on, are compared with all r at once, in an array with an axis for r.
        """
        reach = -(-self.size // self.stride)
        blocks = self.count + reach - 1
        source = self._padded(source, axis, reach - 1, reach - 1)
        place = self._padded(place, axis, reach - 1, reach - 1, -1)
        total = None
        for m in reversed(range(reach)):
            start = reach - 1 - m
            gradient, at = (lax.slice_in_dim(a, start, start + blocks, axis=axis) for a in (source, place))
            wanted = np.arange(self.stride) + m * self.stride
            wanted = np.where(wanted < self.size, wanted, -2).astype(place.dtype)
            hit = jnp.expand_dims(at, axis + 1) == self._along(wanted, axis + 1, source.ndim + 1)
            part = jnp.where(hit, jnp.expand_dims(gradient, axis + 1), np.zeros((), source.dtype))
            total = part if total is None else total + part
        assert total is not None
        shape = (*source.shape[:axis], blocks * self.stride, *source.shape[axis + 1 :])
        return self._padded(total.reshape(shape), axis, -self.low, self.length + self.low - shape[axis])

    @staticmethod
    def _padded(array: jax.Array, axis: int, low: int, high: int, value: int = 0) -> jax.Array:
        if not (low or high):
            return array
        config = [(0, 0, 0)] * array.ndim
        config[axis] = (low, high, 0)
        return lax.pad(array, np.array(value, array.dtype), config)

    @staticmethod
    def _along(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
        """Reshapes a vector to lie along one axis of `ndim`."""
        return values.reshape((1,) * axis + (-1,) + (1,) * (ndim - axis - 1))
