"""`CanonicalConvolution`: the shapes and attributes of a convolution, independent of its layout."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable

import numpy as np

Pairs = tuple[tuple[int, int], ...]
HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")


@dataclasses.dataclass(frozen=True)
class ConvLayout:
    """Layout of a convolution: StableHLO's `ConvDimensionNumbers`.

    Attributes:
        input_batch, input_feature, input_spatial: axes of the left operand.
        kernel_input_feature, kernel_output_feature, kernel_spatial: axes of the right operand.
        output_batch, output_feature, output_spatial: axes of the result.

    Example:
        >>> ConvLayout(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)) == ConvLayout.canonical(2)
        True
    """

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]

    @staticmethod
    def canonical(rank: int) -> ConvLayout:
        """Returns the canonical layout: (batch, *space, features), kernel (*space, features in, features out)."""
        outer, inner = tuple(range(1, rank + 1)), tuple(range(rank))
        return ConvLayout(0, rank + 1, outer, rank, rank + 1, inner, 0, rank + 1, outer)

    @property
    def input(self) -> tuple[int, ...]:
        """The input's axes in canonical order."""
        return self.input_batch, *self.input_spatial, self.input_feature

    @property
    def kernel(self) -> tuple[int, ...]:
        """The kernel's axes in canonical order."""
        return *self.kernel_spatial, self.kernel_input_feature, self.kernel_output_feature

    @property
    def output(self) -> tuple[int, ...]:
        """The result's axes in canonical order."""
        return self.output_batch, *self.output_spatial, self.output_feature


@dataclasses.dataclass(frozen=True)
class CanonicalConvolution:
    """Convolution of an input (batch, *space, features) with a kernel (*window, features in, features out).

    The result is (batch, *output space, features out). Every shape is static and nothing refers to an
    array, so that what is decided from a problem is a pure function of it.

    Attributes:
        batch: rows of the input. The result has `batch // batch_groups`.
        in_features: features of the input. The kernel sees `in_features // feature_groups` of them.
        out_features: features of the result.
        input: the input's spatial sizes.
        window: the kernel's spatial sizes.
        strides, input_dilation, window_dilation: one for each spatial axis, 1 for none.
        padding: zeros before and after each spatial axis of the dilated input. Negative ones crop.
        feature_groups: how many groups of features are convolved separately.
        batch_groups: how many groups of batch rows are convolved separately, each giving its features.
        dtype, out_dtype: names of the operands' and of the result's element type.
        precision: JAX's precision.
        leading_contraction: whether the features, which are summed over, lie before the batch in memory,
            as in the filter gradient of a convolution (its features are the examples).
    """

    batch: int
    in_features: int
    out_features: int
    input: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    padding: Pairs
    input_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]
    feature_groups: int = 1
    batch_groups: int = 1
    dtype: str = "float32"
    out_dtype: str = "float32"
    precision: Hashable = None
    leading_contraction: bool = False

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.input)

    @property
    def output(self) -> tuple[int, ...]:
        """The result's spatial sizes."""
        return tuple(self._output_size(axis) for axis in range(self.rank))

    def _output_size(self, axis: int) -> int:
        room = spread(self.input[axis], self.input_dilation[axis]) + sum(self.padding[axis])
        reach = spread(self.window[axis], self.window_dilation[axis])
        return max(0, (room - reach) // self.strides[axis] + 1)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(batch, *space, features) of the input."""
        return self.batch, *self.input, self.in_features

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        """(*window, features in of a group, features out) of the kernel."""
        return *self.window, self.group_features, self.out_features

    @property
    def output_shape(self) -> tuple[int, ...]:
        """(batch, *output space, features out) of the result."""
        return self.batch // self.batch_groups, *self.output, self.out_features

    @property
    def group_features(self) -> int:
        """The input's features that one output feature depends on."""
        return self.in_features // self.feature_groups

    @property
    def groups(self) -> int:
        """Feature groups or batch groups, whichever there are."""
        return self.feature_groups * self.batch_groups

    @property
    def taps(self) -> int:
        """Positions in the window."""
        return math.prod(self.window)

    @property
    def positions(self) -> int:
        """Positions in the result's space."""
        return math.prod(self.output)

    @property
    def pixels(self) -> int:
        """Positions in the result, over its batch."""
        return self.positions * self.output_shape[0]

    @property
    def products(self) -> int:
        """Multiplications of an element by a weight, zeros of dilated inputs left out."""
        dilution = math.prod(self.input_dilation)
        return self.pixels * self.taps * self.group_features * self.out_features // dilution

    @property
    def accumulator(self) -> str:
        """The element type of sums: float32 for the 16-bit floats, else the result's."""
        return "float32" if self.out_dtype in HALVES else self.out_dtype

    @property
    def is_plain(self) -> bool:
        """Returns whether the input is not dilated and the padding crops nothing."""
        crops = any(low < 0 or high < 0 for low, high in self.padding)
        return not crops and all(dilation == 1 for dilation in self.input_dilation)

    @property
    def is_padded(self) -> bool:
        """Returns whether any axis is padded or cropped."""
        return any(low or high for low, high in self.padding)

    @property
    def is_floating(self) -> bool:
        """Returns whether the elements are floating-point numbers that the plans were made for."""
        return self.dtype in FLOATS

    def bytes_of(self, *shape: int) -> int:
        """Returns the size in bytes of an array of the operands' type."""
        return math.prod(shape) * np.dtype(self.dtype).itemsize

    def but(self, **changes: object) -> CanonicalConvolution:
        """Returns a copy with some attributes changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def __str__(self) -> str:
        shapes = (self.input_shape, self.kernel_shape, self.output_shape)
        return "{} * {} -> {} {}".format(*("x".join(map(str, shape)) for shape in shapes), self.dtype)


def spread(size: int, dilation: int) -> int:
    """Returns the extent of `size` elements that are `dilation` apart."""
    return (size - 1) * dilation + 1 if size else 0
