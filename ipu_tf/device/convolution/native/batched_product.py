"""Products of many small matrices, in float32, by the native kernel: those of attention's heads.

XLA computes them one after the other, each by all threads, after it has transposed what does not lie as it wants it.
The kernel deals whole matrices out to the threads, and reads operands where they lie.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from jax.extend import core

from ipu_tf.device.convolution.native import library

#: As in `batched_product.c`.
BATCH_AXES, MOST_INNER = 3, 1024
#: Multiply-adds of the least call, and the most of one of its matrices: XLA's product of larger ones is as fast.
LEAST, LARGE = 2**16, 2**26
MOST_PARTS = 16
"""Parts of a call. Results do not depend on them."""


@dataclasses.dataclass(frozen=True)
class BatchedProduct:
    """A product of matrices, each of a batch: `[*batch, rows, inner]` times `[*batch, inner, columns]`.

    Attributes:
        batch: sizes of the batch's axes.
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

    def pays(self) -> bool:
        """Returns whether the kernel takes it, and is faster than XLA.

        Example:
            >>> heads = BatchedProduct((8, 4), 128, 64, 128, (32768, 64), (32768, 64), (256, 1), (1, 256))
            >>> heads.pays(), dataclasses.replace(heads, batch=(1, 1)).pays()
            (True, False)
        """
        count, each = math.prod(self.batch), self.rows * self.inner * self.columns
        taken = len(self.batch) <= BATCH_AXES and 1 <= self.inner <= MOST_INNER
        return taken and count > 1 and each <= LARGE and count * each >= LEAST

    def words(self, level: int) -> np.ndarray:
        """Returns the shapes as `batched_product.c` has them, int64."""
        fill = BATCH_AXES - len(self.batch)
        axes = [*[1] * fill, *self.batch, *[0] * fill, *self.left_batch, *[0] * fill, *self.right_batch]
        parts = min(MOST_PARTS, math.prod(self.batch))
        return np.array([level, self.rows, self.inner, self.columns, *axes, *self.left, *self.right, parts], np.int64)


def batched_product(left: jax.Array, right: jax.Array, form: BatchedProduct, level: int | None = None) -> jax.Array:
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
    product: jax.Array = jax.ffi.ffi_call(native.batched_product, result)(left, right, shapes=words)
    return product


def form_of(eqn: core.JaxprEqn) -> BatchedProduct | None:
    """Returns the product that an equation is; None unless it is a batched one of matrices, in float32."""
    if eqn.primitive.name != "dot_general" or jax.local_device_count() > 1:  # XLA would gather a divided batch
        return None
    types: list[Any] = [each.aval for each in (*eqn.invars, *eqn.outvars)]
    contracted, batch = eqn.params["dimension_numbers"]
    shapes = [each.shape for each in types[:2]]
    matrices = len(contracted[0]) == 1 and all(len(shape) == len(batch[0]) + 2 for shape in shapes)
    if not matrices or not batch[0] or any(each.dtype != np.float32 or not each.size for each in types):
        return None
    (left_inner,), (right_inner,) = contracted
    left_free, right_free = (
        next(axis for axis in range(len(shape)) if axis not in (*taken, inner))
        for shape, taken, inner in zip(shapes, batch, (left_inner, right_inner), strict=True)
    )
    left, right = map(_strides, shapes)
    return BatchedProduct(
        batch=tuple(shapes[0][axis] for axis in batch[0]),
        rows=shapes[0][left_free],
        inner=shapes[0][left_inner],
        columns=shapes[1][right_free],
        left_batch=tuple(left[axis] for axis in batch[0]),
        right_batch=tuple(right[axis] for axis in batch[1]),
        left=(left[left_free], left[left_inner]),
        right=(right[right_inner], right[right_free]),
    )


def is_batched_product(eqn: core.JaxprEqn) -> bool:
    """Returns whether an equation is a product of many small matrices for which the kernel pays."""
    form = form_of(eqn)
    return form is not None and form.pays()


def batched(eqn: core.JaxprEqn, left: jax.Array, right: jax.Array) -> jax.Array:
    """Returns the result of an equation that `is_batched_product`."""
    form = form_of(eqn)
    assert form is not None
    return batched_product(left, right, form)


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
