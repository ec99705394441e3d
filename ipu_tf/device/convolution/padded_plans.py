"""Convolution plans that pad the operands of XLA's own convolution, so that it stays with its fast kernel."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from ipu_tf.device.convolution.fast_kernel import (
    has_odd_channels,
    is_overpadded,
    is_swapped,
    is_unpadded_and_large,
    written_padding,
)
from ipu_tf.device.convolution.plan import Best, Plan, Solve, traffic
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.windows import pad_spatial


def _pays_to_pad(problem: CanonicalConvolution) -> bool:
    """Tests whether the guard's padding is worth it: not if it makes the result larger than the input."""
    return is_unpadded_and_large(problem) and not is_overpadded(_guarded(problem))


def _guarded(problem: CanonicalConvolution) -> CanonicalConvolution:
    """Returns the problem with one more zero after its longest axis."""
    axis = max(range(problem.rank), key=lambda a: problem.output[a])
    padding = tuple((low, high + (a == axis)) for a, (low, high) in enumerate(problem.padding))
    return problem.but(padding=padding)


def _cost_guarded(problem: CanonicalConvolution, best: Best) -> float:
    return best(_guarded(problem)) + traffic(problem.bytes_of(*problem.output_shape))


def _emit_guarded(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    return lax.slice(solve(lhs, rhs, _guarded(problem)), (0,) * (problem.rank + 2), problem.output_shape)


def _prepadded(problem: CanonicalConvolution) -> CanonicalConvolution:
    entries = zip(problem.input, problem.padding, written_padding(problem), strict=True)
    changed = [(n + low + high, (before - low, after - high)) for n, (before, after), (low, high) in entries]
    return problem.but(input=tuple(n for n, _ in changed), padding=tuple(padding for _, padding in changed))


def _cost_prepadded(problem: CanonicalConvolution, best: Best) -> float:
    changed = _prepadded(problem)
    return best(changed) + traffic(problem.bytes_of(*changed.input_shape))


def _emit_prepadded(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    # A barrier, so that the compiler does not fold this padding back into the convolution.
    padded = lax.optimization_barrier(pad_spatial(lhs, written_padding(problem)))
    return solve(padded, rhs, _prepadded(problem))


def _cost_widened(problem: CanonicalConvolution, best: Best) -> float:
    wider = problem.but(in_features=problem.in_features + 1)
    return best(wider) + traffic(problem.bytes_of(*wider.input_shape))


def _emit_widened(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    lhs = lax.pad(lhs, np.zeros((), lhs.dtype), [(0, 0, 0)] * (problem.rank + 1) + [(0, 1, 0)])
    rhs = pad_spatial(rhs[None], ((0, 0),) * problem.rank + ((0, 1),))[0]
    return solve(lhs, rhs, problem.but(in_features=problem.in_features + 1))


GUARDED = Plan(
    "guarded",
    "without padding the library writes the windows out to memory; a row of zeros, its results cut off, avoids it",
    _pays_to_pad,
    _cost_guarded,
    _emit_guarded,
)
WIDENED = Plan(
    "widened",
    "the library is slow at odd numbers of features; a feature of zeros is added",
    has_odd_channels,
    _cost_widened,
    _emit_widened,
)
PREPADDED = Plan(
    "prepadded",
    "the library's fast kernel takes neither padding that makes the result larger than the input, nor an input that is "
    "smaller than the window",
    lambda problem: is_overpadded(problem) or is_swapped(problem),
    _cost_prepadded,
    _emit_prepadded,
)
PLANS = (GUARDED, PREPADDED, WIDENED)
