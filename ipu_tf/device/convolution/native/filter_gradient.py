"""Gradient of a convolution's filters, and of its bias, by the native kernel: geometry, partition and call."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.axes import three_axes

#: Products of a part of a call, about; where the input is written out for each feature; and the most parts.
#: None of them depends on the number of cores, so results do not.
PART, PART_BY_FEATURE, MOST_PARTS = 4e6, 1e6, 16
#: Floats of all slices' sums; beside half of what the operands have.
MOST_SUMS = 2**20
#: Positions of the result that are worked on at a time, and those of its input that are written out for them.
POSITIONS, PACKED_POSITIONS = 128, 448
#: The most of these, as `geometry.h` has it, and its padding of features.
ROOM, PAD = 768, 16
#: Features of a group: with fewer, the input is written out for each feature of the result.
FEW_OUT, FEW_IN = 8, 4

Sizes = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class FilterGradient:
    """Shapes of a filter gradient; that of a convolution of one to three spatial axes, float32.

    Attributes:
        images: examples in a batch.
        in_features, out_features: of the convolution, over all groups.
        groups: of features.
        input, window, output: spatial sizes of the convolution's input, filters and result.
        strides, dilation: of the convolution; `dilation` that of the window.
        low: zeros before each spatial axis of the input; negative ones crop. Zeros after it follow from the sizes.
    """

    images: int
    in_features: int
    out_features: int
    groups: int
    input: Sizes
    window: Sizes
    output: Sizes
    strides: Sizes
    dilation: Sizes
    low: Sizes

    @property
    def by_feature(self) -> bool:
        """Whether the input is written out for each feature of the result: depthwise, and groups of few features."""
        few = self.out_features // self.groups < FEW_OUT or self.in_features // self.groups < FEW_IN
        return self.groups > 1 and few

    @property
    def products(self) -> int:
        """Multiply-adds of the kernel, those with padding of features included."""
        return self._lines * self._width * self.images * math.prod(self.output)

    @property
    def _lines(self) -> int:
        return math.prod(self.window) * self.in_features // self.groups

    @property
    def _width(self) -> int:
        groups = 1 if self.by_feature else self.groups
        return _ceiling(self.out_features // groups, PAD) * PAD * groups

    @property
    def _sums(self) -> int:
        """Floats of a slice's sums, with a line for the bias's."""
        return (self._lines + 1) * self._width

    @property
    def _data(self) -> int:
        """Floats of both operands."""
        return self.images * (math.prod(self.input) * self.in_features + math.prod(self.output) * self.out_features)

    def fits(self) -> bool:
        """Returns whether what is written out of the input for one position of the result fits the kernel's room."""
        return not self.by_feature or math.prod(self._seen(1, 1)) <= ROOM

    def _seen(self, rows: int, columns: int) -> tuple[int, int]:
        """Returns the rows and columns of the input that a unit's windows span."""
        sizes, (_, *window), (_, *strides), (_, *dilation) = (rows, columns), *self._three()[1:4]
        rows, columns = (
            (n - 1) * s + (w - 1) * d + 1 for n, w, s, d in zip(sizes, window, strides, dilation, strict=True)
        )
        return rows, columns

    def _three(self) -> tuple[list[int], ...]:
        """Returns output, window, strides and dilation for three axes."""
        each = (self.output, self.window, self.strides, self.dilation)
        return tuple(map(three_axes, each))

    def unit(self) -> tuple[int, int, int]:
        """Returns planes, rows and columns of the result that are worked on at a time: they stay in the first cache."""
        _, high, wide = self._three()[0]
        columns = _ceiling(wide, _ceiling(wide, POSITIONS))
        room = ROOM if self.by_feature else math.inf
        while columns > 1 and math.prod(self._seen(1, columns)) > room:
            columns = _ceiling(columns, 2)
        rows = max(1, min(high, POSITIONS // columns))
        while self.by_feature and rows > 1 and math.prod(self._seen(rows, columns)) > PACKED_POSITIONS:
            rows -= 1
        whole = (rows, columns) == (high, wide)
        return max(1, POSITIONS // (high * wide)) if whole else 1, rows, columns

    def units(self) -> int:
        """Returns how many units there are."""
        planes, rows, columns = self.unit()
        depth, high, wide = self._three()[0]
        return _ceiling(self.images * depth, planes) * _ceiling(high, rows) * _ceiling(wide, columns)

    def partition(self) -> tuple[int, int]:
        """Returns slices of the images and bands of the features: their product is the number of parts.

        Each slice reads its images once, each band all of them; but slices have sums of their own.
        """
        parts, size = 1, PART_BY_FEATURE if self.by_feature else PART
        while parts < MOST_PARTS and self.products > size * parts:
            parts *= 2
        if self.by_feature:
            bands = min(parts, _ceiling(self.out_features, PAD))
            return max(1, min(parts // bands, self.units())), bands
        slices = max(1, min(parts, self.units(), min(MOST_SUMS, self._data // 2) // self._sums))
        blocks = _ceiling(self.in_features // self.groups, 4) * self.groups // 2
        return slices, max(1, min(parts // slices, blocks))

    def words(self, level: int) -> np.ndarray:
        """Returns the geometry as `geometry.h` has it, int64."""
        each = (self.input, self.window, self.output, self.strides, self.dilation)
        axes = [*sum(map(three_axes, each), []), *three_axes(self.low, fill=0)]
        features = (int(self.by_feature), self.images, self.groups, self.in_features, self.out_features)
        return np.array([level, *features, *axes, *self.partition(), *self.unit()], np.int64)

    def room(self) -> int:
        """Returns the floats that the kernel needs for sums."""
        return self.partition()[0] * self._sums


def filter_gradient(
    x: jax.Array, g: jax.Array, shapes: FilterGradient, bias: bool = False, level: int | None = None
) -> list[jax.Array]:
    """Computes the gradient of a convolution's filters, and with `bias` that of its bias.

    Args:
        x: the convolution's input, `[images, *input, in features]`, float32.
        g: the gradient of its result, `[images, *output, out features]`, float32.
        shapes: the convolution.
        bias: whether the sum of `g` over all axes but the last is wanted too.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        `[*window, in features of a group, out features]`, and with `bias` `[out features]`.

    Raises:
        RuntimeError: if there is no native library.
    """
    native = library.needed()

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.float32)

    filters = array(*shapes.window, shapes.in_features // shapes.groups, shapes.out_features)
    results = (filters, array(shapes.room()), *([array(shapes.out_features)] if bias else []))
    words = shapes.words(library.level_or_best(level))
    made = jax.ffi.ffi_call(native.target(library.FILTER_GRADIENT), results)(x, g, geometry=words)
    return [made[0], *made[2:]]


def _ceiling(count: int, size: int) -> int:
    return -(-count // size)
