"""The product of matrices that a `dot_general` is: which axes are rows and columns, and where their elements lie."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from ipu_tf.device.convolution.native.matrix_product import MatrixProduct


def form_of(eqn: core.JaxprEqn, order: Sequence[int] | None = None) -> MatrixProduct | None:
    """Returns the product that an equation is; None unless it is one of matrices, in float32, on one device.

    Args:
        eqn: a `dot_general`, or another equation.
        order: the permutation of the result's axes that follows it, if one does.
    """
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
    return _form(
        left, right, _Result.of(types[2].shape, order, len(batch[0]), len(types[0].shape) - len(contracted[0]))
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
    def of(shape: Sequence[int], batch: Sequence[int], summed: Sequence[int]) -> _Operand | None:
        """Returns those of an operand; None if axes that are to be one do not lie as one."""
        strides = _strides(shape)
        left = [axis for axis in range(len(shape)) if axis not in (*batch, *summed)]
        inner, free = (_as_one((shape[axis], strides[axis]) for axis in axes) for axes in (summed, left))
        if inner is None or free is None:
            return None
        long = [axis for axis in batch if shape[axis] > 1]
        return _Operand(tuple(shape[axis] for axis in long), tuple(strides[axis] for axis in long), inner, free)


@dataclasses.dataclass(frozen=True)
class _Result:
    """Strides of a result: of its batch's axes that are longer than 1, of the rows, and of the columns."""

    batch: tuple[int, ...]
    rows: int
    columns: int

    @staticmethod
    def of(shape: Sequence[int], order: Sequence[int] | None, batch: int, columns: int) -> _Result | None:
        """Returns those of a result whose axes are permuted; None if axes that are to be one do not lie as one.

        Args:
            shape: before the permutation: the batch's axes, the rows', the columns'.
            order: the permutation.
            batch: how many axes the batch has.
            columns: the first axis of the columns.
        """
        order = range(len(shape)) if order is None else order
        strides = dict(zip(order, _strides([shape[axis] for axis in order]), strict=True))
        axes = range(batch, columns), range(columns, len(shape))
        rows, across = (_as_one((shape[axis], strides[axis]) for axis in each) for each in axes)
        if rows is None or across is None:
            return None
        return _Result(tuple(strides[axis] for axis in range(batch) if shape[axis] > 1), rows[1], across[1])


def _form(left: _Operand, right: _Operand, result: _Result | None) -> MatrixProduct | None:
    """Returns a product, or that of the transposed matrices where the rows of the result lie one after the other."""
    if result is None or 1 not in (result.rows, result.columns):
        return None
    rows, turned = result.rows, result.columns != 1
    if turned:
        left, right, rows = right, left, result.columns
    return MatrixProduct(
        batch=left.batch,
        rows=left.free[0],
        inner=left.inner[0],
        columns=right.free[0],
        left_batch=left.batch_strides,
        right_batch=right.batch_strides,
        left=(left.free[1], left.inner[1]),
        right=(right.inner[1], right.free[1]),
        result=(*result.batch, rows),
        turned=turned,
    )


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _as_one(axes: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Returns size and stride of axes as one axis; None if others lie between them."""
    long = [axis for axis in axes if axis[0] > 1] or [(1, 1)]
    together = all(first[1] == next_[0] * next_[1] for first, next_ in itertools.pairwise(long))
    return (math.prod(size for size, _ in long), long[-1][1]) if together else None
