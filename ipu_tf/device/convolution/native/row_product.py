"""Products of a few rows with a large matrix, in float32, by the native kernel: what decoding a text mostly is.

Each number of the matrix is used a few times, so memory is what such a product waits for. The kernel reads the matrix
once, in the order in which it lies there, on all of XLA's threads.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ipu_tf.device.convolution.native import library

MOST_ROWS = 8
"""As in `row_product.c`."""
LEAST = 2**18
"""Numbers of the smallest matrix: 1 MB. A smaller one stays in the caches."""
PART, MOST_PARTS = 2**17, 16
"""Numbers of a part of a call, at least, and the most parts. Results do not depend on the number of cores."""


@dataclasses.dataclass(frozen=True)
class RowProduct:
    """A product of `[rows, inner]` with a matrix.

    Attributes:
        rows, inner, columns: how many.
        turned: whether the matrix is `[columns, inner]` instead of `[inner, columns]`.
    """

    rows: int
    inner: int
    columns: int
    turned: bool = False

    def pays(self) -> bool:
        """Returns whether the kernel takes it, and it waits for memory.

        Example:
            >>> [RowProduct(rows, 768, 768).pays() for rows in (1, 8, 9)], RowProduct(1, 768, 2).pays()
            ([True, True, False], False)
        """
        return 1 <= self.rows <= MOST_ROWS and self.inner * self.columns >= LEAST

    @property
    def parts(self) -> int:
        """Parts of a call: slices of the inner axis, or, turned, of the columns."""
        whole = self.columns if self.turned else self.inner
        return max(1, min(MOST_PARTS, self.inner * self.columns // PART, whole))

    def room(self) -> int:
        """Returns the floats that the kernel needs for sums of slices."""
        return 1 if self.turned or self.parts == 1 else self.parts * self.rows * self.columns


def row_product(x: jax.Array, matrix: jax.Array, turned: bool = False, level: int | None = None) -> jax.Array:
    """Computes `x @ matrix`, or, turned, `x @ matrix.T`.

    Args:
        x: `[rows, inner]`, float32, of 1 to `MOST_ROWS` rows.
        matrix: `[inner, columns]`, or, turned, `[columns, inner]`, float32, not empty.
        turned: whether columns are the matrix's first axis.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        `[rows, columns]`, float32.

    Raises:
        RuntimeError: if there is no native library.
    """
    native = library.needed()
    form = RowProduct(x.shape[0], x.shape[1], matrix.shape[0 if turned else 1], turned)
    words = np.array(
        [library.level_or_best(level), form.rows, form.inner, form.columns, int(turned), form.parts], np.int64
    )
    results = tuple(jax.ShapeDtypeStruct(size, np.float32) for size in ((form.rows, form.columns), (form.room(),)))
    product: jax.Array = jax.ffi.ffi_call(native.target(library.ROW_PRODUCT), results)(x, matrix, shapes=words)[0]
    return product


def is_row_product(eqn: core.JaxprEqn) -> bool:
    """Returns whether an equation is a product of a few rows with a matrix for which the kernel pays."""
    if eqn.primitive.name != "dot_general" or jax.local_device_count() > 1:  # XLA would gather a divided matrix
        return False
    types: list[Any] = [each.aval for each in (*eqn.invars, *eqn.outvars)]
    if any(each.dtype != np.float32 for each in types) or any(eqn.params["dimension_numbers"][1]):
        return False
    return _matrix_side(eqn) is not None


def computed(eqn: core.JaxprEqn, *operands: jax.Array) -> jax.Array:
    """Returns the result of an equation that `is_row_product`."""
    side = _matrix_side(eqn)
    assert side is not None
    form = _form(eqn, side)
    assert form is not None
    contracting = eqn.params["dimension_numbers"][0]
    # In the order in which they lie in the matrix.
    axes = [axis for _, axis in sorted(zip(contracting[side], contracting[1 - side], strict=True))]
    vectors, matrix = operands[1 - side], operands[side]
    free = [axis for axis in range(vectors.ndim) if axis not in axes]
    x = jnp.transpose(vectors, (*free, *axes)).reshape(form.rows, form.inner)
    shape = (form.columns, form.inner) if form.turned else (form.inner, form.columns)
    product = row_product(x, matrix.reshape(shape), form.turned)
    return (product if side else product.T).reshape(eqn.outvars[0].aval.shape)  # type: ignore[attr-defined]


def _matrix_side(eqn: core.JaxprEqn) -> int | None:
    """Returns which operand is the matrix; None if the kernel does not take the product."""
    for side in (1, 0):
        form = _form(eqn, side)
        if form is not None and form.pays():
            return side
    return None


def _form(eqn: core.JaxprEqn, side: int) -> RowProduct | None:
    """Returns the product whose matrix is that operand; None if what is summed over lies in the midst of its axes."""
    axes = tuple(sorted(eqn.params["dimension_numbers"][0][side]))
    shapes: list[Any] = [each.aval.shape for each in eqn.invars]  # type: ignore[attr-defined]
    first, last = tuple(range(len(axes))), tuple(range(len(shapes[side]) - len(axes), len(shapes[side])))
    if axes not in (first, last):
        return None
    inner = math.prod(shapes[side][axis] for axis in axes)
    if not inner:
        return None
    rows, columns = (math.prod(shapes[which]) // inner for which in (1 - side, side))
    return RowProduct(rows, inner, columns, turned=axes != first)
