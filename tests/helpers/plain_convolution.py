"""`by_definition`: convolutions in float64 by NumPy, without XLA, whose own convolution is one of the tested ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ipu_tf.device.convolution.problem import CanonicalConvolution, spread


def by_definition(lhs: ArrayLike, rhs: ArrayLike, problem: CanonicalConvolution) -> np.ndarray:
    """Returns the convolution of canonical operands in float64, or complex128: a product for each tap of the window."""
    x, kernel = (np.asarray(each).astype(np.result_type(np.asarray(each), np.float64)) for each in (lhs, rhs))
    result = np.zeros(problem.output_shape, x.dtype)
    if not result.size:
        return result
    room = _padded(x, problem)
    for tap in np.ndindex(*problem.window):
        seen = _in_groups(room[(slice(None), *_positions(problem, tap))], problem)
        filters = kernel[tap].reshape(problem.group_features, problem.groups, -1)
        result += np.einsum("...gi,igo->...go", seen, filters).reshape(result.shape)
    return result


def _padded(x: np.ndarray, problem: CanonicalConvolution) -> np.ndarray:
    """Dilates the input, pads it with zeros, and crops it where padding is negative."""
    sizes = map(spread, problem.input, problem.input_dilation)
    dilated = np.zeros((problem.batch, *sizes, problem.in_features), x.dtype)
    dilated[(slice(None), *(slice(None, None, step) for step in problem.input_dilation))] = x
    around = [(max(0, low), max(0, high)) for low, high in problem.padding]
    padded = np.pad(dilated, ((0, 0), *around, (0, 0)))
    axes = zip(problem.padding, padded.shape[1:-1], strict=True)
    return padded[(slice(None), *(slice(max(0, -low), size - max(0, -high)) for (low, high), size in axes))]


def _positions(problem: CanonicalConvolution, tap: tuple[int, ...]) -> tuple[slice, ...]:
    """Returns what an element of the window sees of the padded input."""
    axes = zip(tap, problem.window_dilation, problem.strides, problem.output, strict=True)
    return tuple(slice(k * apart, k * apart + (n - 1) * step + 1, step) for k, apart, step, n in axes)


def _in_groups(x: np.ndarray, problem: CanonicalConvolution) -> np.ndarray:
    """Returns x as (batch of the result, *space, groups, features of a group)."""
    if problem.batch_groups > 1:
        return np.moveaxis(x.reshape(problem.batch_groups, -1, *x.shape[1:]), 0, -2)
    return x.reshape(*x.shape[:-1], problem.feature_groups, problem.group_features)
