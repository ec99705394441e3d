"""im2col: strided slices of a convolution's input, one for each tap, and the patch matrix of all of them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device.convolution.problem import CanonicalConvolution, Pairs

#: Taps above which those along the first axis are written in a loop, for a shorter program.
MOST_UNROLLED = 16


@dataclasses.dataclass(frozen=True)
class Windows:
    """Sliding windows over padded spatial axes. All tuples have one entry for each axis.

    Attributes:
        counts: how many windows there are.
        steps: how far apart neighbouring windows begin.
        taps: how many elements a window has.
        dilation: how far apart these are.
        padding: zeros before and after.
    """

    counts: tuple[int, ...]
    steps: tuple[int, ...]
    taps: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Pairs

    @staticmethod
    def of(problem: CanonicalConvolution) -> Windows:
        """Returns the windows of a convolution: one for each output position, with one tap for each kernel position."""
        return Windows(problem.output, problem.strides, problem.window, problem.window_dilation, problem.padding)

    @staticmethod
    def transposed(problem: CanonicalConvolution) -> Windows:
        """Returns the windows with positions and taps exchanged: one window for each kernel position."""
        return Windows(problem.window, problem.window_dilation, problem.output, problem.strides, problem.padding)

    def slices(self, array: jax.Array) -> Iterator[jax.Array]:
        """Slices (batch, *space, features) for each tap, in row-major order, into (batch, *counts, features)."""
        array = pad_spatial(array, self.padding)
        for tap in np.ndindex(*self.taps):
            start = [t * d for t, d in zip(tap, self.dilation, strict=True)]
            stop = [b + (c - 1) * s + 1 for b, c, s in zip(start, self.counts, self.steps, strict=True)]
            yield lax.slice(array, (0, *start, 0), (array.shape[0], *stop, array.shape[-1]), (1, *self.steps, 1))

    def patches(self, array: jax.Array, align: int = 1) -> jax.Array:
        """Returns im2col patches, a row for each window: (batch, *counts, taps * features), padded to `align`."""
        columns = list(self._padded().slices(self._pad(array)))
        width = math.prod(self.taps) * array.shape[-1]
        if width % align:
            columns.append(jnp.zeros((*columns[0].shape[:-1], -width % align), array.dtype))
        return jnp.concatenate(columns, axis=-1) if len(columns) > 1 else columns[0]

    def write_patches(self, array: jax.Array, rows: jax.Array) -> jax.Array:
        """Writes the patches without padding into `rows`, which has their shape."""
        array, features = self._pad(array), array.shape[-1]
        inner = dataclasses.replace(self._padded(), taps=(1, *self.taps[1:]))
        width, span = math.prod(inner.taps), (self.counts[0] - 1) * self.steps[0] + 1

        def write(tap: int | jax.Array, rows: jax.Array) -> jax.Array:
            seen = lax.dynamic_slice_in_dim(array, tap * self.dilation[0], span, 1)
            for number, column in enumerate(inner.slices(seen)):
                rows = lax.dynamic_update_slice_in_dim(rows, column, (tap * width + number) * features, -1)
            return rows

        if math.prod(self.taps) > MOST_UNROLLED:
            return lax.fori_loop(0, self.taps[0], write, rows)
        return functools.reduce(lambda written, tap: write(tap, written), range(self.taps[0]), rows)

    def _padded(self) -> Windows:
        """Returns the same windows over an array that is padded already."""
        return dataclasses.replace(self, padding=((0, 0),) * len(self.counts))

    def _pad(self, array: jax.Array) -> jax.Array:
        """Pads the array once, rather than in each slice."""
        return lax.optimization_barrier(pad_spatial(array, self.padding))


def batch_first(lhs: jax.Array, rhs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Transposes both operands of a sum over examples, which are the features here, to put the examples first."""
    return jnp.moveaxis(lhs, (0, -1), (-1, 0)), jnp.moveaxis(rhs, -2, 0)


def pad_spatial(array: jax.Array, padding: Pairs) -> jax.Array:
    """Pads the spatial axes of (batch, *space, features) with zeros."""
    if not any(any(sides) for sides in padding):
        return array
    config = [(low, high, 0) for low, high in padding]
    return lax.pad(array, np.zeros((), array.dtype), [(0, 0, 0), *config, (0, 0, 0)])


def flat(array: jax.Array) -> jax.Array:
    """Flattens all axes but the last."""
    return array.reshape(-1, array.shape[-1])


def product(left: jax.Array, right: jax.Array, axes: tuple[int, int], problem: CanonicalConvolution) -> jax.Array:
    """Contracts one axis of each operand, with the problem's precision, in its accumulator's type."""
    return lax.dot_general(
        left,
        right,
        (((axes[0],), (axes[1],)), ((), ())),
        precision=problem.precision,  # type: ignore[arg-type]
        preferred_element_type=np.dtype(problem.accumulator),
    )
