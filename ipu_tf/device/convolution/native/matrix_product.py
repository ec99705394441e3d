"""Products of matrices, in float32, by the native kernel: many small ones, as attention's heads are, or one.

XLA computes those of a batch one after the other, each by all threads, after it has transposed what does not lie as it
wants it, and a small one at half the speed of a large one. The kernel deals columns of whole products out to the
threads, and reads operands where they lie. XLA keeps what does not fit the caches.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from ipu_tf.device.convolution.native import library

#: As in `matrix_product.c`.
BATCH_AXES = 3
#: Multiply-adds of the least call, of the largest matrix of a batch, and of the largest without a batch.
LEAST, LARGE, LARGE_ALONE = 2**14, 2**26, 2**28
#: Without a batch: numbers of operands and result, at most; rows and columns, at least, also where an axis is long.
MOST_NUMBERS, FEWEST = 2**22, 8
LONG, FEWEST_OF_LONG = 4096, 32
#: Multiply-adds of a part of a call, about; the least of two parts; the most parts.
PART, TWO, MOST_PARTS = 2**19, 2**18, 16


@dataclasses.dataclass(frozen=True)
class MatrixProduct:
    """A product of matrices, or of a batch of them: `[*batch, rows, inner]` times `[*batch, inner, columns]`.

    Attributes:
        batch: sizes of the batch's axes, those of length 1 left out.
        rows, inner, columns: how many.
        left_batch, right_batch: strides of the batch's axes, in elements.
        left, right: strides of the left matrix's rows and inner axis, and of the right one's inner axis and columns.
    """

    batch: tuple[int, ...]
    rows: int
    inner: int
    columns: int
    left_batch: tuple[int, ...]
    right_batch: tuple[int, ...]
    left: tuple[int, int]
    right: tuple[int, int]

    @staticmethod
    def of(rows: int, inner: int, columns: int, turned: bool = False) -> MatrixProduct:
        """Returns the product of `[rows, inner]`, or turned `[inner, rows]`, with `[inner, columns]`."""
        return MatrixProduct((), rows, inner, columns, (), (), (1, rows) if turned else (inner, 1), (columns, 1))

    def pays(self) -> bool:
        """Returns whether the kernel takes it, and is faster than XLA.

        Example:
            >>> heads = MatrixProduct((8, 4), 128, 64, 128, (32768, 64), (32768, 64), (256, 1), (1, 256))
            >>> layer = MatrixProduct.of(32, 784, 128)
            >>> [each.pays() for each in (heads, layer, dataclasses.replace(layer, rows=2**16))]
            [True, True, False]
        """
        if len(self.batch) > BATCH_AXES or self.inner < 1 or self._products() < LEAST:
            return False
        if self.batch:
            return self.rows * self.inner * self.columns <= LARGE
        narrow = min(self.rows, self.columns)
        long = max(self.rows, self.inner, self.columns) > LONG
        small = self._products() <= LARGE_ALONE and self._numbers() <= MOST_NUMBERS
        return small and narrow >= (FEWEST_OF_LONG if long else FEWEST)

    def _numbers(self) -> int:
        return self.rows * self.inner + self.inner * self.columns + self.rows * self.columns

    def _products(self) -> int:
        return math.prod(self.batch) * self.rows * self.inner * self.columns

    def parts(self) -> int:
        """Returns the parts of a call, a power of two: results do not depend on them.

        Example:
            >>> [MatrixProduct.of(rows, 64, 64).parts() for rows in (32, 64, 1024)]
            [1, 2, 8]
        """
        least = 2 if self._products() >= TWO else 1
        wanted = min(MOST_PARTS, max(least, self._products() // PART))
        return 1 << (wanted.bit_length() - 1)

    def words(self, level: int) -> np.ndarray:
        """Returns the shapes as `matrix_product.c` has them, int64."""
        fill = BATCH_AXES - len(self.batch)
        axes = [*[1] * fill, *self.batch, *[0] * fill, *self.left_batch, *[0] * fill, *self.right_batch]
        sizes = self.rows, self.inner, self.columns
        return np.array([level, *sizes, *axes, *self.left, *self.right, self.parts()], np.int64)


def matrix_product(left: jax.Array, right: jax.Array, form: MatrixProduct, level: int | None = None) -> jax.Array:
    """Computes the product.

    Args:
        left, right: float32; where their elements lie is in `form`.
        form: the product.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        `[*batch, rows, columns]`, float32.

    Raises:
        RuntimeError: if there is no native library.
    """
    native = library.needed()
    result = jax.ShapeDtypeStruct((*form.batch, form.rows, form.columns), np.float32)
    words = form.words(library.level_or_best(level))
    product: jax.Array = jax.ffi.ffi_call(native.target(library.MATRIX_PRODUCT), result)(left, right, shapes=words)
    return product


def form_of(eqn: core.JaxprEqn) -> MatrixProduct | None:
    """Returns the product that an equation is; None unless it is one of matrices, in float32, on one device."""
    if eqn.primitive.name != "dot_general" or jax.local_device_count() > 1:  # XLA would gather a divided operand
        return None
    types: list[Any] = [each.aval for each in (*eqn.invars, *eqn.outvars)]
    if any(each.dtype != np.float32 or not each.size for each in types):
        return None
    contracted, batch = eqn.params["dimension_numbers"]
    pairs = sorted(zip(*contracted, strict=True))
    left, right = (_Operand.of(types[side].shape, batch[side], [pair[side] for pair in pairs]) for side in (0, 1))
    if left is None or right is None:
        return None
    return MatrixProduct(
        batch=left.batch,
        rows=left.free[0],
        inner=left.inner[0],
        columns=right.free[0],
        left_batch=left.batch_strides,
        right_batch=right.batch_strides,
        left=(left.free[1], left.inner[1]),
        right=(right.inner[1], right.free[1]),
    )


@dataclasses.dataclass(frozen=True)
class _Operand:
    """Sizes and strides of an operand: of its batch's axes that are longer than 1, and of the others, each as one axis.

    Attributes:
        batch, batch_strides: of the batch's axes, in the order of the product.
        inner, free: size and stride of the axes that are summed over, and of the others.
    """

    batch: tuple[int, ...]
    batch_strides: tuple[int, ...]
    inner: tuple[int, int]
    free: tuple[int, int]

    @staticmethod
    def of(shape: tuple[int, ...], batch: Sequence[int], summed: Sequence[int]) -> _Operand | None:
        """Returns those of an operand; None if axes that are to be one do not lie as one."""
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        left = [axis for axis in range(len(shape)) if axis not in (*batch, *summed)]
        inner, free = (_as_one((shape[axis], strides[axis]) for axis in axes) for axes in (summed, left))
        if inner is None or free is None:
            return None
        long = [axis for axis in batch if shape[axis] > 1]
        return _Operand(tuple(shape[axis] for axis in long), tuple(strides[axis] for axis in long), inner, free)


def _as_one(axes: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Returns size and stride of axes as one axis; None if others lie between them."""
    long = [axis for axis in axes if axis[0] > 1] or [(1, 1)]
    together = all(first[1] == next_[0] * next_[1] for first, next_ in itertools.pairwise(long))
    return (math.prod(size for size, _ in long), long[-1][1]) if together else None


def is_matrix_product(eqn: core.JaxprEqn) -> bool:
    """Returns whether an equation is a product of matrices for which the kernel pays."""
    form = form_of(eqn)
    return form is not None and form.pays()


def multiplied(eqn: core.JaxprEqn, left: jax.Array, right: jax.Array) -> jax.Array:
    """Returns the result of an equation that `is_matrix_product`."""
    form = form_of(eqn)
    assert form is not None
    result: Any = eqn.outvars[0].aval
    return matrix_product(left, right, form).reshape(result.shape)
