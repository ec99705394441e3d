"""Sums over an axis, and moments: sums, and squared distances from the mean, by the native kernels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ipu_tf.device.convolution.native import library

#: Elements of a part of a call, about, the most parts, and the fewest terms of a slice.
#: None of them depends on the number of cores, so results do not.
PART, MOST_PARTS, FEWEST_TERMS = 2**16, 16, 64


@dataclasses.dataclass(frozen=True)
class MiddleSum:
    """Sum over the middle axis of `[before, terms, after]`."""

    before: int
    terms: int
    after: int

    @classmethod
    def of(cls, shape: Sequence[int], axes: Sequence[int]) -> MiddleSum | None:
        """Returns the sum over these axes; None unless they are adjacent."""
        first, last = min(axes), max(axes) + 1
        if last - first != len(axes):
            return None
        return cls(math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:]))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the operand."""
        return self.before, self.terms, self.after

    def partition(self) -> tuple[int, int]:
        """Returns slices of the terms and cuts of what is before them: their product is the number of parts.

        Example:
            >>> [MiddleSum(*shape).partition() for shape in ((1, 65536, 96), (600, 512, 1), (1, 64, 96))]
            [(16, 1), (1, 4), (1, 1)]
        """
        wanted = max(1, min(MOST_PARTS, math.prod(self.shape) // PART))
        cuts = min(self.before, wanted)
        return max(1, min(wanted // cuts, self.terms // FEWEST_TERMS)), cuts

    def words(self, level: int | None) -> np.ndarray:
        """Returns shapes and partition as `middle_sum.h` has them, int64."""
        return np.array([library.level_or_best(level), *self.shape, *self.partition()], np.int64)

    def room(self) -> int:
        """Returns the floats that the kernel needs for sums of slices."""
        slices, _ = self.partition()
        return slices * self.before * self.after if slices > 1 else 1


def middle_sum(x: jax.Array, level: int | None = None) -> jax.Array:
    """Sums over the middle axis.

    Args:
        x: `[before, terms, after]`, float32, none of them 0.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        `[before, after]`, float32. It does not depend on the instruction set.

    Raises:
        RuntimeError: if there is no native library.
    """
    native = library.needed()
    wanted = MiddleSum(*x.shape)
    sizes = ((wanted.before, wanted.after), (wanted.room(),))
    results = tuple(jax.ShapeDtypeStruct(size, np.float32) for size in sizes)
    total: jax.Array = jax.ffi.ffi_call(native.target(library.SUM), results)(x, shapes=wanted.words(level))[0]
    return total


def moments(x: jax.Array, level: int | None = None) -> tuple[jax.Array, jax.Array]:
    """Sums over the middle axis, and sums squared distances from the mean, in one pass.

    Args:
        x: `[before, terms, after]`, float32, none of them 0.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        `sums` and `squares`, `[before, after]`, float32: the sum of the terms, and of `(term - sums / terms)**2`. They
        do not depend on the instruction set.

    Raises:
        RuntimeError: if there is no native library.

    Example:
        >>> [each.tolist() for each in moments(jax.numpy.array([[[1.0, 5.0], [3.0, 5.0]]]))]
        [[[4.0, 10.0]], [[2.0, 0.0]]]
    """
    native = library.needed()
    wanted = MiddleSum(*x.shape)
    result = jax.ShapeDtypeStruct((wanted.before, wanted.after), np.float32)
    call = jax.ffi.ffi_call(native.target(library.MOMENTS), (result, result))
    sums, squares = call(x, shapes=wanted.words(level))
    return sums, squares


def is_middle_sum(eqn: Any) -> bool:
    """Returns whether an equation of a jaxpr is a call of `middle_sum`'s kernel."""
    native = library.loaded()
    return native is not None and eqn.params.get("target_name") == native.target(library.SUM)
