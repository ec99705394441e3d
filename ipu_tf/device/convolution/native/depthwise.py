"""Depthwise convolutions by the native kernel: shapes and call."""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np

from ipu_tf.device.convolution.native import library

#: Multiply-adds of a part of a call, about, and the most parts. Results do not depend on them.
PART, MOST_PARTS = 2**18, 16
#: Elements of a window, and features, as `depthwise.c` has them.
MOST_TAPS, FEWEST_FEATURES = 128, 16

Sizes = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Depthwise:
    """Shapes of a depthwise convolution of one to three spatial axes, float32: a filter for each feature.

    Attributes:
        images: examples in a batch.
        features: of input and result.
        input, window, output: spatial sizes.
        strides: of the window.
        spread: distances of the input's elements, 1 for none between them; only where the stride is 1.
        dilation: distances of the window's elements.
        low: zeros before each spatial axis; negative ones crop. Zeros after it follow from the sizes.
    """

    images: int
    features: int
    input: Sizes
    window: Sizes
    output: Sizes
    strides: Sizes
    spread: Sizes
    dilation: Sizes
    low: Sizes

    def fits(self) -> bool:
        """Returns whether the kernel takes it.

        Example:
            >>> shapes = Depthwise(8, 32, (9,), (3,), (5,), (2,), (1,), (1,), (1,))
            >>> [each.fits() for each in (shapes, dataclasses.replace(shapes, features=8))]
            [True, False]
        """
        steps = zip(self.strides, self.spread, strict=True)
        sizes = (self.images, *self.input, *self.window, *self.output)
        few = self.features >= FEWEST_FEATURES and math.prod(self.window) <= MOST_TAPS
        return few and 1 <= len(self.input) <= 3 and min(sizes) > 0 and all(1 in pair for pair in steps)

    def parts(self) -> int:
        """Returns the parts of a call."""
        lines = self.images * math.prod(self.output[:-1])
        products = lines * self.output[-1] * self.features * math.prod(self.window)
        return min(lines, MOST_PARTS, max(1, products // PART))

    def words(self, level: int) -> np.ndarray:
        """Returns the shapes as `depthwise.c` has them, int64."""
        fill = 3 - len(self.input)
        ones = (self.input, self.window, self.output, self.strides, self.spread, self.dilation)
        axes = [number for sizes in ones for number in (*[1] * fill, *sizes)]
        return np.array([level, self.images, self.features, *axes, *[0] * fill, *self.low, self.parts()], np.int64)


def depthwise(x: jax.Array, filters: jax.Array, shapes: Depthwise, level: int | None = None) -> jax.Array:
    """Computes the convolution.

    Args:
        x: `[images, *input, features]`, float32.
        filters: `[*window, 1, features]`, float32.
        shapes: of the convolution.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        `[images, *output, features]`, float32.

    Raises:
        RuntimeError: if there is no native library.
    """
    native = library.needed()
    result = jax.ShapeDtypeStruct((shapes.images, *shapes.output, shapes.features), np.float32)
    words = shapes.words(library.level_or_best(level))
    made: jax.Array = jax.ffi.ffi_call(native.depthwise, result)(x, filters, shapes=words)
    return made
