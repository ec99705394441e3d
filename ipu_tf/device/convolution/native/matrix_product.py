"""Products of matrices, in float32, by the native kernel: many small ones, as attention's heads are, or one.

XLA computes those of a batch one after the other, each by all threads, after it has transposed what does not lie as it
wants it, and a small one at half the speed of a large one. The kernel deals columns of whole products out to the
threads, and reads operands where they lie. XLA keeps what does not fit the caches.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import numpy as np

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
        result: strides of the batch's axes, and of the rows, of the result; None if it is `[*batch, rows, columns]`. A
            row's columns lie one after the other.
        turned: whether it is the product of the transposed matrices: the left one here is the right one of the program.
    """

    batch: tuple[int, ...]
    rows: int
    inner: int
    columns: int
    left_batch: tuple[int, ...]
    right_batch: tuple[int, ...]
    left: tuple[int, int]
    right: tuple[int, int]
    result: tuple[int, ...] | None = None
    turned: bool = False

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

    def words(self, level: int, bias: bool = False, addend: bool = False, least_zero: bool = False) -> np.ndarray:
        """Returns the shapes, and what follows the product, as `matrix_product.c` has them, int64."""
        fill = [0] * (BATCH_AXES - len(self.batch))
        axes = [*[1] * len(fill), *self.batch, *fill, *self.left_batch, *fill, *self.right_batch]
        sizes = self.rows, self.inner, self.columns
        each = (*self.batch, self.rows, self.columns)
        result = [math.prod(each[axis:]) for axis in range(1, len(each))] if self.result is None else self.result
        strides = [*self.left, *self.right, *fill, *result]
        return np.array([level, *sizes, *axes, *strides, bias, addend, least_zero, self.parts()], np.int64)


def matrix_product(
    left: jax.Array,
    right: jax.Array,
    form: MatrixProduct,
    level: int | None = None,
    *,
    bias: jax.Array | None = None,
    addend: jax.Array | None = None,
    least_zero: bool = False,
    shape: Sequence[int] | None = None,
) -> jax.Array:
    """Computes the product.

    Args:
        left, right: float32; where their elements lie is in `form`.
        form: the product.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.
        bias: `[columns]` in any shape, float32: added to each row.
        addend: of the result's elements, float32: added then.
        least_zero: whether negative results are 0 then.
        shape: another shape of the result's elements.

    Returns:
        `[*batch, rows, columns]`, or of that shape, float32.

    Raises:
        RuntimeError: if there is no native library.
    """
    native = library.needed()
    result = jax.ShapeDtypeStruct(shape or (*form.batch, form.rows, form.columns), np.float32)
    words = form.words(library.level_or_best(level), bias is not None, addend is not None, least_zero)
    operands = [each for each in (left, right, bias, addend) if each is not None]
    product: jax.Array = jax.ffi.ffi_call(native.target(library.MATRIX_PRODUCT), result)(*operands, shapes=words)
    return product
