"""Convolution plans for transposed convolutions and gradients of strided ones: inputs with dilation.

The zeros of the dilated input need not be multiplied. In each axis the results fall into `dilation` phases,
each of which sees every `dilation`-th tap only:

    dilation 2, window 3:   input     a . b . c        results 0 2 4 see taps 0 and 2,
                            results  0 1 2 3 4         results 1 3 see tap 1
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.convolution.plan import Best, Plan, Solve, arithmetic, traffic
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.windows import pad_spatial, product

#: Phases above which the program would be long.
MOST_PHASES = 8


@dataclasses.dataclass(frozen=True)
class _Phase:
    """Results `first`, `first + dilation`, ... along one axis, and the convolution that computes them."""

    first: int
    count: int
    taps: range
    padding: tuple[int, int]


def _phase(problem: CanonicalConvolution, axis: int, first: int) -> _Phase:
    dilation, low, size = problem.input_dilation[axis], problem.padding[axis][0], problem.input[axis]
    taps = range((low - first) % dilation, problem.window[axis], dilation)
    count = len(range(first, problem.output[axis], dilation))
    offset = (first + taps.start - low) // dilation
    return _Phase(first, count, taps, (-offset, count - 1 + offset + len(taps) - size))


def _phases(problem: CanonicalConvolution) -> Iterator[tuple[_Phase, ...]]:
    """Returns every combination of one phase of each axis that has results and taps."""
    by_axis = [
        [_phase(problem, axis, first) for first in range(problem.input_dilation[axis])] for axis in range(problem.rank)
    ]
    for phases in itertools.product(*by_axis):
        if all(phase.count and phase.taps for phase in phases):
            yield phases


def _part(problem: CanonicalConvolution, phases: tuple[_Phase, ...]) -> CanonicalConvolution:
    """Returns the convolution of the undilated input for one combination of phases."""
    return problem.but(
        window=tuple(len(phase.taps) for phase in phases),
        padding=tuple(phase.padding for phase in phases),
        input_dilation=(1,) * problem.rank,
    )


def _dilates_only_its_input(problem: CanonicalConvolution) -> bool:
    return (
        set(problem.strides) == {1}
        and set(problem.window_dilation) == {1}
        and max(problem.input_dilation) > 1
        and problem.batch_groups == 1
        and problem.is_floating
    )


def _applies_phases(problem: CanonicalConvolution) -> bool:
    return _dilates_only_its_input(problem) and math.prod(problem.input_dilation) <= MOST_PHASES


def _cost_phases(problem: CanonicalConvolution, best: Best) -> float:
    parts = sum(best(_part(problem, phases)) for phases in _phases(problem))
    return parts + 2 * traffic(problem.bytes_of(*problem.output_shape))


def _emit_phases(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    sizes = tuple(-(-size // dilation) for size, dilation in zip(problem.output, problem.input_dilation, strict=True))
    nothing = jnp.zeros((problem.batch, *sizes, problem.out_features), problem.out_dtype)
    parts = dict.fromkeys(itertools.product(*map(range, problem.input_dilation)), nothing)
    for phases in _phases(problem):
        taps = tuple(slice(p.taps.start, None, p.taps.step) for p in phases)
        part = solve(lhs, rhs[taps], _part(problem, phases))
        missing = tuple((0, size - phase.count) for size, phase in zip(sizes, phases, strict=True))
        parts[tuple(phase.first for phase in phases)] = pad_spatial(part, missing)
    return _interleaved(list(parts.values()), problem)


def _interleaved(parts: list[jax.Array], problem: CanonicalConvolution) -> jax.Array:
    """Puts the results of each phase, (batch, *space, features), to their positions in the output.

    As one array that is transposed: a sum of parts that are dilated with zeros would write each to memory in full.
    """
    rank = problem.rank
    stacked = jnp.stack(parts).reshape(*problem.input_dilation, *parts[0].shape)
    tiles = jnp.moveaxis(stacked, range(rank), range(rank + 1, 2 * rank + 1))
    return _laid_out(tiles, problem)[(slice(None), *(slice(size) for size in problem.output))]


def _applies_tiles(problem: CanonicalConvolution) -> bool:
    fits = all(w <= d for w, d in zip(problem.window, problem.input_dilation, strict=True))
    return _dilates_only_its_input(problem) and fits and problem.groups == 1


def _cost_tiles(problem: CanonicalConvolution, best: Best) -> float:
    tiles = problem.bytes_of(problem.batch, *problem.input, problem.taps, problem.out_features)
    products = math.prod(problem.input_shape) * problem.taps * problem.out_features
    return arithmetic(products) + traffic(tiles) + traffic(problem.bytes_of(*problem.output_shape))


def _emit_tiles(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    space = _laid_out(_tiles(lhs, rhs, problem), problem)
    padding = []
    for axis, (low, _) in enumerate(problem.padding):
        start = low - (problem.window[axis] - 1)
        padding.append((start, problem.output[axis] - space.shape[axis + 1] - start))
    return pad_spatial(space, tuple(padding))


def _tiles(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Computes what each input element adds to nearby results: (batch, *space, *dilation, features)."""
    kernel = jnp.moveaxis(lax.rev(rhs, tuple(range(problem.rank))), -2, 0).reshape(problem.in_features, -1)
    tiles = product(lhs.reshape(-1, problem.in_features), kernel, (1, 0), problem).astype(problem.out_dtype)
    tiles = tiles.reshape(-1, *problem.window, problem.out_features)
    gaps = tuple((0, d - w) for d, w in zip(problem.input_dilation, problem.window, strict=True))
    return pad_spatial(tiles, gaps).reshape(
        problem.batch, *problem.input, *problem.input_dilation, problem.out_features
    )


def _laid_out(tiles: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Interleaves the tiles: (batch, *(space * dilation), features)."""
    rank = problem.rank
    order = [axis for n in range(1, rank + 1) for axis in (n, n + rank)]
    sizes = (n * d for n, d in zip(tiles.shape[1 : rank + 1], problem.input_dilation, strict=True))
    space = tiles.transpose(0, *order, 2 * rank + 1)
    return space.reshape(problem.batch, *sizes, problem.out_features)


PHASES = Plan(
    "phases",
    "the zeros of the dilated input are left out: one convolution for each phase of the results",
    _applies_phases,
    _cost_phases,
    _emit_phases,
)
TILES = Plan(
    "tiles",
    "no result sees two elements of the dilated input: one matrix product whose rows are tiles of the result",
    _applies_tiles,
    _cost_tiles,
    _emit_tiles,
)
PLANS = (PHASES, TILES)
