"""Convolutions by the native kernels, dense and depthwise: which they take, and the calls.

They compute layers and, as convolutions of dilated inputs, the gradients of layers' inputs.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np

from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.axes import three_axes

#: Multiply-adds of a part of a call, about, and the most parts. Results do not depend on them.
PART, MOST_PARTS = 2**18, 16
#: Elements of a window, and lines of the input that a dense call holds, as `convolution_lines.h` has it.
MOST_TAPS = 128
#: Floats of the lines of the input that a part of a dense call holds, as `dense_convolution.c` has it.
MOST_FLOATS = 2**16
#: Floats of the lines of a result before pooling that a part of a dense call holds, as `dense_convolution.c` has it.
MOST_POOLED = 2**15
#: Features of the result that a dense call computes together.
WIDTH = 32
#: Features of a depthwise call, as `depthwise_convolution.c` has it.
FEWEST_FEATURES = 16

Sizes = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ForwardConvolution:
    """Shapes of a convolution of one to three spatial axes, float32.

    Attributes:
        images: examples in a batch.
        in_features, out_features: of input and result.
        groups: 1, or a group for each feature.
        input, window, output: spatial sizes.
        strides: of the window.
        spread: distances of the input's elements, 1 for none between them; only where the stride is 1.
        dilation: distances of the window's elements.
        low: zeros before each spatial axis; negative ones crop. Zeros after it follow from the sizes.
        turned: whether the filters are those of the layer whose gradient it is: `[*window, out features, in features]`,
            the last element of the window first. Only of a dense one.
        pool: sizes of the windows of the result of which the largest elements are wanted; None for no pooling. Only of
            a dense one.
    """

    images: int
    in_features: int
    out_features: int
    groups: int
    input: Sizes
    window: Sizes
    output: Sizes
    strides: Sizes
    spread: Sizes
    dilation: Sizes
    low: Sizes
    turned: bool = False
    pool: Sizes | None = None

    def is_dense(self) -> bool:
        """Returns whether the kernel for dense convolutions takes it: one or two axes, lines that are not long.

        Example:
            >>> layer = ForwardConvolution(8, 3, 32, 1, (9,), (3,), (5,), (2,), (1,), (1,), (1,))
            >>> [each.is_dense() for each in (layer, dataclasses.replace(layer, input=(2**15,)))]
            [True, False]
        """
        few = self.groups == 1 and len(self.input) <= 2 and self._fits() and self._lines() <= MOST_TAPS
        return few and self._lines() * self._line() <= MOST_FLOATS and self._before_pooling() <= MOST_POOLED

    def is_depthwise(self) -> bool:
        """Returns whether the kernel for depthwise convolutions takes it.

        Example:
            >>> layer = ForwardConvolution(8, 32, 32, 32, (9,), (3,), (5,), (2,), (1,), (1,), (1,))
            >>> [each.is_depthwise() for each in (layer, dataclasses.replace(layer, groups=16))]
            [True, False]
        """
        alone = self.groups == self.in_features == self.out_features
        return alone and self.in_features >= FEWEST_FEATURES and self._fits()

    def _fits(self) -> bool:
        steps = zip(self.strides, self.spread, strict=True)
        sizes = (self.images, self.in_features, self.out_features, *self.input, *self.window, *self.output)
        small = math.prod(self.window) <= MOST_TAPS
        least = min(*sizes, *self._pooled())
        return small and 1 <= len(self.input) <= 3 and least > 0 and all(1 in pair for pair in steps)

    def _lines(self) -> int:
        """Lines of the input that lie between the first and the last that a line of the result sees."""
        return (self.window[0] - 1) * self.dilation[0] + 1 if len(self.input) > 1 else 1

    def _before_pooling(self) -> int:
        """Floats of the lines before pooling that a line of the result is of."""
        if self.pool is None:
            return 0
        rows = self.pool[0] if len(self.pool) > 1 else 1
        return rows * self.output[-1] * self.out_features

    def _line(self) -> int:
        """Floats of a line of the input, with zeros beside it; a bound."""
        reach = (self.window[-1] - 1) * self.dilation[-1] + 1
        seen = (self.output[-1] - 1) * self.strides[-1] // self.spread[-1] + reach
        return (self.input[-1] + seen + abs(self.low[-1])) * self.in_features

    @property
    def products(self) -> int:
        """Multiply-adds, without those of zeros between the input's elements."""
        features = self.in_features // self.groups * self.out_features
        positions = math.prod(self.output) * math.prod(self.window) // math.prod(self.spread)
        return self.images * positions * features

    def parts(self) -> int:
        """Returns the parts of a call: lines of the result are dealt out to them."""
        lines = self.images * math.prod(self._pooled()[:-1])
        return min(lines, MOST_PARTS, max(1, self.products // PART))

    def packed(self) -> int:
        """Returns the floats of the filters as a dense call packs them."""
        return math.prod(self.window) * self.in_features * (-(-self.out_features // WIDTH) * WIDTH)

    def words(self, level: int) -> np.ndarray:
        """Returns the shapes as `convolution_lines.h` has them, int64."""
        each = (self.input, self.window, self.output, self.strides, self.spread, self.dilation)
        axes = [*sum(map(three_axes, each), []), *three_axes(self.low, fill=0)]
        pool = three_axes(self.pool or ())
        return np.array(
            [level, self.images, self.in_features, self.out_features, *axes, self.turned, *pool, self.parts()], np.int64
        )

    def result(self) -> jax.ShapeDtypeStruct:
        """Returns shape and dtype of the result."""
        return jax.ShapeDtypeStruct((self.images, *self._pooled(), self.out_features), np.float32)

    def _pooled(self) -> Sizes:
        """Spatial sizes of the result."""
        pool = self.pool or (1,) * len(self.output)
        return tuple(size // by for size, by in zip(self.output, pool, strict=True))


def dense_convolution(
    x: jax.Array,
    filters: jax.Array,
    shapes: ForwardConvolution,
    bias: jax.Array | None = None,
    level: int | None = None,
) -> jax.Array:
    """Computes a convolution that `is_dense`; with a bias, `max(convolution + bias, 0)`; pooled if `shapes` says so.

    Args:
        x: `[images, *input, in features]`, float32.
        filters: `[*window, in features, out features]`, float32; turned if `shapes` says so.
        shapes: of the convolution.
        bias: `[out features]`, float32.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        `[images, *output, out features]`, float32; pooled, `output` is divided by `pool`, without what is left.

    Raises:
        RuntimeError: if there is no native library.
    """
    native = library.needed()
    results = [shapes.result(), jax.ShapeDtypeStruct((shapes.packed(),), np.float32)]
    operands = (x, filters) if bias is None else (x, filters, bias)
    words = shapes.words(library.level_or_best(level))
    made, _ = jax.ffi.ffi_call(native.target(library.DENSE_CONVOLUTION), results)(*operands, shapes=words)
    return made


def depthwise_convolution(
    x: jax.Array, filters: jax.Array, shapes: ForwardConvolution, level: int | None = None
) -> jax.Array:
    """Computes a convolution that `is_depthwise`.

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
    words = shapes.words(library.level_or_best(level))
    made: jax.Array = jax.ffi.ffi_call(native.target(library.DEPTHWISE_CONVOLUTION), shapes.result())(
        x, filters, shapes=words
    )
    return made
