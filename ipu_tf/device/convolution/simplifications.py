"""Convolution plans that simplify a convolution first: empty, cropped, with axes of size 1, with many taps."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.convolution.plan import Best, Plan, Solve, traffic
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.windows import pad_spatial

#: Taps along the first axis above which the program would be long.
MOST_SLICES = 32


def _applies_empty(problem: CanonicalConvolution) -> bool:
    return 0 in (*problem.input_shape, *problem.kernel_shape, *problem.output_shape)


def _emit_empty(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    return jnp.zeros(problem.output_shape, problem.out_dtype)


def _crops(problem: CanonicalConvolution) -> tuple[tuple[int, int], ...]:
    return tuple((min(low, 0), min(high, 0)) for low, high in problem.padding)


def _cropped(problem: CanonicalConvolution) -> CanonicalConvolution:
    return problem.but(
        input=tuple(n + sum(crop) for n, crop in zip(problem.input, _crops(problem), strict=True)),
        padding=tuple((max(low, 0), max(high, 0)) for low, high in problem.padding),
    )


def _applies_crop(problem: CanonicalConvolution) -> bool:
    undilated = all(dilation == 1 for dilation in problem.input_dilation)
    return undilated and not problem.is_plain and min(_cropped(problem).input) >= 0


def _emit_crop(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    return solve(pad_spatial(lhs, _crops(problem)), rhs, _cropped(problem))


def _flat_axes(problem: CanonicalConvolution) -> list[int]:
    """Returns the axes of size 1 with a window of 1 and no padding."""
    axes = range(problem.rank)
    return [a for a in axes if problem.input[a] == problem.window[a] == 1 and problem.padding[a] == (0, 0)]


def _squeezed(problem: CanonicalConvolution) -> CanonicalConvolution:
    kept = [axis for axis in range(problem.rank) if axis not in _flat_axes(problem)]
    names = ("input", "window", "strides", "padding", "input_dilation", "window_dilation")
    return problem.but(**{name: tuple(getattr(problem, name)[axis] for axis in kept) for name in names})


def _applies_squeeze(problem: CanonicalConvolution) -> bool:
    return 0 < len(_flat_axes(problem)) < problem.rank


def _emit_squeeze(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    changed = _squeezed(problem)
    result = solve(lhs.reshape(changed.input_shape), rhs.reshape(changed.kernel_shape), changed)
    return result.reshape(problem.output_shape)


def _slice(problem: CanonicalConvolution) -> CanonicalConvolution:
    """Convolves over the other axes, for all positions along the first axis and one tap of it."""
    names = ("input", "window", "strides", "padding", "input_dilation", "window_dilation")
    rest = {name: getattr(problem, name)[1:] for name in names}
    return problem.but(batch=problem.batch * problem.output[0], out_dtype=problem.accumulator, **rest)


def _applies_slices(problem: CanonicalConvolution) -> bool:
    simple = problem.is_plain and problem.is_floating and not problem.leading_contraction
    return problem.rank > 2 and simple and problem.batch_groups == 1 and problem.window[0] <= MOST_SLICES


def _cost_slices(problem: CanonicalConvolution, best: Best) -> float:
    part = _slice(problem)
    moved = traffic(problem.bytes_of(*part.input_shape)) + traffic(problem.bytes_of(*problem.output_shape))
    return problem.window[0] * (best(part) + moved)


def _emit_slices(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    part = _slice(problem)
    padded = pad_spatial(lhs, (problem.padding[0], *((0, 0),) * (problem.rank - 1)))
    span = (problem.output[0] - 1) * problem.strides[0] + 1
    total = jnp.zeros((), problem.accumulator)
    for tap in range(problem.window[0]):
        start = tap * problem.window_dilation[0]
        seen = lax.slice_in_dim(padded, start, start + span, problem.strides[0], axis=1)
        total = total + solve(seen.reshape(part.input_shape), rhs[tap], part)
    return total.reshape(problem.output_shape).astype(problem.out_dtype)


EMPTY = Plan("empty", "nothing is summed", _applies_empty, lambda problem, best: -math.inf, _emit_empty)
CROP = Plan(
    "crop",
    "negative padding crops the input",
    _applies_crop,
    lambda problem, best: best(_cropped(problem)),
    _emit_crop,
)
SQUEEZE = Plan(
    "squeeze",
    "axes of one element are left out",
    _applies_squeeze,
    lambda problem, best: best(_squeezed(problem)),
    _emit_squeeze,
)
SLICES = Plan(
    "slices",
    "the library has fast kernels for two axes: a sum of such convolutions over the first axis's taps",
    _applies_slices,
    _cost_slices,
    _emit_slices,
)
PLANS = (EMPTY, CROP, SQUEEZE, SLICES)
