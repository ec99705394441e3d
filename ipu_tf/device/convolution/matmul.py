"""Convolution plans by one matrix product: direct, or over im2col patches."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from ipu_tf.device.convolution.plan import CACHE, Best, Plan, Solve, arithmetic, traffic
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.windows import Windows, flat, product

#: Rows of a patch matrix are filled up to a multiple of this many elements.
ALIGN = 16
#: Taps above which the program for gathering patches would be long.
MOST_TAPS = 64
#: Columns below which XLA's matrix product does not get faster.
NARROW = 32
#: Above so many bytes XLA's matrix product copies its left operand to memory first.
LARGE = 10e6


def _is_dense(problem: CanonicalConvolution) -> bool:
    return problem.groups == 1 and problem.is_plain and problem.is_floating


def _covers(problem: CanonicalConvolution) -> bool:
    """Tests whether the only window is the whole input."""
    return problem.window == problem.input and not problem.is_padded and set(problem.window_dilation) <= {1}


def _applies_matmul(problem: CanonicalConvolution) -> bool:
    simple = problem.taps == 1 or _covers(problem)
    return simple and _is_dense(problem) and not problem.leading_contraction


def _cost_matmul(problem: CanonicalConvolution, best: Best) -> float:
    rows = problem.bytes_of(problem.pixels, problem.taps, problem.in_features)
    copied = traffic(rows) if problem.is_padded or set(problem.strides) != {1} else 0.0
    return arithmetic(problem.products) + copied + (traffic(rows) if rows > LARGE else 0.0)


def _emit_matmul(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    rows = lhs.reshape(problem.batch, -1) if _covers(problem) else flat(Windows.of(problem).patches(lhs))
    result = product(rows, rhs.reshape(-1, problem.out_features), (1, 0), problem)
    return result.reshape(problem.output_shape).astype(problem.out_dtype)


def _row(problem: CanonicalConvolution) -> int:
    """Returns the length of a row of the patch matrix."""
    return -(-problem.taps * problem.in_features // ALIGN) * ALIGN


def _applies_patches(problem: CanonicalConvolution) -> bool:
    return _is_dense(problem) and not problem.leading_contraction and 1 < problem.taps <= MOST_TAPS


def _cost_patches(problem: CanonicalConvolution, best: Best) -> float:
    # A product with few columns takes as long as with more, and gathering is faster than most copies.
    gathered = problem.bytes_of(problem.pixels, _row(problem))
    products = problem.pixels * _row(problem) * max(problem.out_features, NARROW)
    return arithmetic(products) + traffic(gathered) * (0.5 if gathered <= CACHE else 1)


def _emit_patches(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    # The barrier keeps the gathering out of the product, which would gather again for each output feature.
    rows = lax.optimization_barrier(flat(Windows.of(problem).patches(lhs, ALIGN)))
    kernel = rhs.reshape(-1, problem.out_features)
    kernel = lax.pad(kernel, np.zeros((), kernel.dtype), [(0, rows.shape[1] - kernel.shape[0], 0), (0, 0, 0)])
    result = product(rows, kernel, (1, 0), problem)
    return result.reshape(problem.output_shape).astype(problem.out_dtype)


MATMUL = Plan(
    "matmul",
    "each result sees one position, or the whole input: a matrix product without copies",
    _applies_matmul,
    _cost_matmul,
    _emit_matmul,
)
PATCHES = Plan(
    "patches",
    "the windows are small enough to be gathered into a matrix that stays in the cache",
    _applies_patches,
    _cost_patches,
    _emit_patches,
)
PLANS = (MATMUL, PATCHES)
