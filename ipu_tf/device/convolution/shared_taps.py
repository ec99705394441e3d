"""Convolution plan for filter gradients: one matmul, with the filter's taps shared between both operands.

A filter's gradient at the tap (a, b) is a sum over the examples and over space,

    gradient[a, b] = sum over n, r, c of input[n, r + a, c + b] * upstream[n, r, c]
                   = sum over n, r, c of input[n, r, c + b] * upstream[n, r - a, c].

In the second form the columns' taps shift the input and the rows' taps shift the other operand. With each operand
written out for its own taps, it is one product of `[k, columns' taps * features]` and `[k, rows' taps * features out]`.
For a window of 3 x 3 that is six copies of an operand instead of nine, and a product nearer to a square. It is done for
some examples at a time, few enough for the cache.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.convolution import onednn
from ipu_tf.device.convolution.blocks import block_size, sum_over_blocks_in, zeros_like_result
from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.matrix_product import MatrixProduct, matrix_product
from ipu_tf.device.convolution.plan import CALL, Best, Plan, Solve, arithmetic, whole
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.windows import Windows, batch_first, flat, pad_spatial, product

#: Bytes of both operands written out at a time.
CHUNK = 8e6
#: Copies above which the program would be long.
MOST_COPIES = 32
#: Flops in a microsecond, and bytes.
RATE, BYTES = 260e3, 30e3
#: The same for a window of 1 x 1, whose operands are not written out, but read from memory.
ONE_TAP_RATE, ONE_TAP_BYTES = 400e3, 20e3
#: Features for which a product takes as long as for fewer.
WIDTH = 16


def _rows(problem: CanonicalConvolution) -> int:
    """Returns the number of input rows that the sum reads."""
    return (problem.output[0] - 1) * problem.strides[0] + problem.window[0]


def _column_taps(problem: CanonicalConvolution) -> int:
    return math.prod(problem.output[1:])


def _applies(problem: CanonicalConvolution) -> bool:
    summed = problem.leading_contraction and problem.groups == 1 and problem.is_plain and problem.is_floating
    in_steps_of_one = problem.rank > 1 and problem.window_dilation[0] == 1
    return summed and in_steps_of_one and problem.output[0] + _column_taps(problem) <= MOST_COPIES


def _width(problem: CanonicalConvolution) -> tuple[int, int]:
    """Returns the number of columns of both operands."""
    return _column_taps(problem) * problem.batch, problem.output[0] * problem.out_features


def _example_bytes(problem: CanonicalConvolution) -> int:
    return problem.bytes_of(_rows(problem), *problem.window[1:], sum(_width(problem)))


def _block(problem: CanonicalConvolution) -> int:
    return block_size(problem.in_features, int(CHUNK // _example_bytes(problem)))


def _cost(problem: CanonicalConvolution, best: Best) -> float:
    left, right = (whole(width, WIDTH) for width in _width(problem))
    products = problem.in_features * _rows(problem) * math.prod(problem.window[1:]) * left * right
    blocks = problem.in_features / _block(problem)
    one = math.prod(problem.output) == 1
    rate, speed = (ONE_TAP_RATE, ONE_TAP_BYTES) if one else (RATE, BYTES)
    return arithmetic(products, rate) + problem.in_features * _example_bytes(problem) / speed + blocks * 8 * CALL


def _emit(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    operands = lax.optimization_barrier(batch_first(lhs, rhs))
    total = sum_over_blocks_in(
        lambda left, right: _room(left, right, problem),
        lambda room, left, right: _part(room, left, right, problem),
        operands,
        _block(problem),
    )
    result = total.reshape(*problem.output[1:], problem.batch, problem.output[0], problem.out_features)
    return jnp.moveaxis(result, (-3, -2), (0, 1)).astype(problem.out_dtype)


Room = tuple[jax.Array, jax.Array]


def _room(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> Room:
    """Allocates the buffers of both operands: (examples * rows, *columns, taps * features), the second zeroed."""
    columns, rows = (lhs.shape[0] * _rows(problem), *problem.window[1:]), (lhs.shape[0], _rows(problem))
    left, right = _width(problem)
    return (
        zeros_like_result(lambda a: jnp.zeros((*columns, left), a.dtype), (lhs,)),
        zeros_like_result(lambda a: jnp.zeros((*rows, *problem.window[1:], right), a.dtype), (rhs,)),
    )


def _part(room: Room, lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> tuple[jax.Array, Room]:
    """Computes some examples' part of the sum: (columns' taps * features, rows' taps * features out)."""
    room = (_write_columns(lhs, room[0], problem), _write_rows(rhs, room[1], problem))
    left, right = flat(room[0]), flat(room[1])
    if problem.dtype == problem.out_dtype == "float32":
        form = MatrixProduct.of(left.shape[1], len(left), right.shape[1], turned=True)
        if library.usable() and form.pays():
            return matrix_product(left, right, form), room
        if onednn.usable():
            return onednn.product_of_columns(left, right), room
    return product(left, right, (0, 0), problem), room


def _write_columns(lhs: jax.Array, room: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Writes the input, shifted, once for each of the columns' taps."""
    padded = pad_spatial(lhs, (problem.padding[0], *((0, 0),) * (problem.rank - 1)))[:, : _rows(problem)]
    every = dataclasses.astuple(Windows.transposed(problem))
    columns = Windows(*(axes[1:] for axes in every))
    return columns.write_patches(padded.reshape(-1, *padded.shape[2:]), room)


def _write_rows(rhs: jax.Array, room: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Writes the other operand, shifted, once for each of the rows' taps, between rows that stay zero."""
    for tap in range(problem.output[0]):
        start = (0, tap * problem.strides[0], *(0,) * (problem.rank - 1), tap * problem.out_features)
        room = lax.dynamic_update_slice(room, rhs, start)
    return room


SHARED_TAPS = Plan(
    "shared taps",
    "a sum over examples with few results: rows' taps shift one operand, columns' taps the other, in one product",
    _applies,
    _cost,
    _emit,
)
PLANS = (SHARED_TAPS,)
