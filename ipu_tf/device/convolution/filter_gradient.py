"""Convolution plans for filter gradients: small result, large kernel, as matrix products over im2col patches.

There the sum runs over the examples and over space. It is one matrix product of the result's windows with
the kernel, too large a matrix to hold, so that it is built and multiplied for some examples at a time, few
enough for the cache.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.convolution.blocks import block_size, sum_over_blocks_in, zeros_like_result
from ipu_tf.device.convolution.plan import CALL, Best, Plan, Solve, arithmetic, traffic
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.windows import Windows, batch_first, flat, product

#: Bytes of patches built at a time.
CHUNK = 4.5e6
#: Result positions above which the program for gathering patches would be long.
MOST_POSITIONS = 128
#: Rows of patches up to this long are cheaper to transpose in the product than the kernel is.
SHORT_ROW = 64
#: Flops in a microsecond, gathering included.
RATE = 130e3
#: Bytes in a microsecond of the input's rows that are written out as columns, where the result has one position.
TRANSPOSED_BYTES = 2e3


def _applies(problem: CanonicalConvolution) -> bool:
    reads_examples = problem.leading_contraction and problem.groups == 1
    return reads_examples and problem.is_plain and problem.is_floating and problem.positions <= MOST_POSITIONS


def _example_bytes(problem: CanonicalConvolution) -> int:
    """Returns the bytes of the patches of one example."""
    return problem.bytes_of(problem.taps, problem.positions, problem.batch)


def _block(problem: CanonicalConvolution) -> int:
    return block_size(problem.in_features, int(CHUNK // _example_bytes(problem)))


def _cost(problem: CanonicalConvolution, best: Best) -> float:
    if problem.positions == 1:
        rows = problem.in_features * _example_bytes(problem)
        return arithmetic(problem.products, RATE) + rows / TRANSPOSED_BYTES
    blocks = problem.in_features / _block(problem)
    return arithmetic(problem.products, RATE) + blocks * (8 * CALL + traffic(_example_bytes(problem)))


def _emit(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    lhs, rhs = batch_first(lhs, rhs)
    if problem.positions == 1:
        result = _one_position(lhs, rhs, problem)
    else:
        lhs, rhs = lax.optimization_barrier((lhs, rhs))
        result = _sum_over_examples(lhs, rhs, problem)
    result = result.reshape(problem.out_features, *problem.output, problem.batch)
    return jnp.moveaxis(result, (0, -1), (-1, 0)).astype(problem.out_dtype)


def _one_position(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Computes a filter gradient with one window position, without gathering patches."""
    rows = lax.optimization_barrier(flat(Windows.transposed(problem).patches(lhs)).T)
    return product(rows, flat(rhs), (1, 0), problem).T


def _sum_over_examples(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """(features out, positions * features in) from (examples, *space, features) of both."""
    windows = Windows.transposed(problem)

    def part(rows: jax.Array, left: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
        rows = windows.write_patches(left, rows)
        return _multiply(rows, right, problem), rows

    def room(left: jax.Array, right: jax.Array) -> jax.Array:
        return zeros_like_result(windows.patches, (left,))

    # The rows are kept from one pass to the next and overwritten, which spares writing them twice.
    return sum_over_blocks_in(room, part, (lhs, rhs), _block(problem))


def _multiply(rows: jax.Array, kernel: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Multiplies the patches of some examples: their part of the sum."""
    if rows.shape[-1] <= SHORT_ROW:
        return product(flat(rows), flat(kernel), (0, 0), problem).T
    return product(lax.optimization_barrier(flat(kernel).T), flat(rows), (1, 0), problem)


FILTER_GRADIENT = Plan(
    "filter gradient",
    "a sum over examples with few results: windows are gathered and multiplied for some examples at a time",
    _applies,
    _cost,
    _emit,
)
PLANS = (FILTER_GRADIENT,)
