"""Convolution plans for grouped and depthwise convolutions: sums of products, or group by group."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.convolution.blocks import block_size, sum_over_blocks
from ipu_tf.device.convolution.plan import CALL, Best, Plan, Solve, traffic
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.windows import Windows, batch_first

#: Products for each result above which the program would be long and a matrix product is better.
MOST_TERMS = 72
#: Microseconds for each product of a sum of products.
TERM = 0.15e-3
#: Bytes of both operands of the examples that are summed at a time.
CHUNK = 8e6
#: So many are always summed at a time: sums of fewer are too many to keep.
FEW_EXAMPLES = 8
#: Products up to which a sum over examples is one program; above, a loop runs over some of them at a time.
MOST_PRODUCTS = 600
#: Groups up to which each has its own part of the program; above, a loop runs over them.
MOST_UNROLLED = 8


def _repeated(array: jax.Array, feature: int, width: int, groups: int) -> jax.Array:
    """Repeats one feature of each group `width` times: (..., groups * features) to (..., groups * width)."""
    grouped = array.reshape(*array.shape[:-1], groups, -1)
    if width == 1:
        return grouped[..., feature]
    spread = jnp.broadcast_to(grouped[..., feature, None], (*grouped.shape[:-1], width))
    spread = spread.reshape(*array.shape[:-1], groups * width)
    # Worth writing out where every product reads it; with several features a group there are too many.
    return lax.optimization_barrier(spread) if grouped.shape[-1] == 1 else spread


def _applies_multiply_add(problem: CanonicalConvolution) -> bool:
    few = problem.taps * problem.group_features <= MOST_TERMS
    return problem.feature_groups > 1 and few and problem.is_plain and problem.is_floating


def _cost_multiply_add(problem: CanonicalConvolution, best: Best) -> float:
    sums = problem.pixels * problem.out_features
    return CALL + TERM * sums * problem.taps * problem.group_features + traffic(problem.bytes_of(sums))


def _emit_multiply_add(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    groups, features = problem.feature_groups, problem.group_features
    lhs, rhs = lax.optimization_barrier((lhs, rhs))
    weights = rhs.reshape(problem.taps, features, -1).astype(problem.accumulator)
    total = None
    for feature in range(features):
        seen = _repeated(lhs, feature, problem.out_features // groups, groups).astype(problem.accumulator)
        for weight, tap in zip(weights[:, feature], Windows.of(problem).slices(seen), strict=True):
            total = tap * weight if total is None else total + tap * weight
    assert total is not None
    return lax.optimization_barrier(total.astype(problem.out_dtype))


def _applies_multiply_reduce(problem: CanonicalConvolution) -> bool:
    few = problem.positions * (problem.batch // problem.batch_groups) <= MOST_TERMS
    grouped = problem.batch_groups > 1 and problem.leading_contraction
    return grouped and few and problem.is_plain and problem.is_floating


def _cost_multiply_reduce(problem: CanonicalConvolution, best: Best) -> float:
    return CALL + TERM * problem.products


def _emit_multiply_reduce(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    # The sum runs over the examples, which are the features here, and over the window.
    operands = lax.optimization_barrier(batch_first(lhs, rhs))
    terms = problem.positions * (problem.batch // problem.batch_groups)
    block = block_size(problem.in_features, MOST_PRODUCTS // terms)
    sums = sum_over_blocks(lambda a, b: _sums_over_examples(a, b, problem), operands, block)
    return sums.reshape(problem.output_shape).astype(problem.out_dtype)


def _sums_over_examples(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Sums over some examples for each feature of a group and each result position: (features out,).

    First some examples are summed, in one pass over many features side by side, then these sums over examples and
    space: XLA computes the sum of an array over all but its last axis one number at a time.
    """
    example = problem.bytes_of(math.prod(problem.input) * problem.batch + problem.taps * problem.out_features)
    block = block_size(lhs.shape[0], max(FEW_EXAMPLES, int(CHUNK // example)))
    starts = range(0, lhs.shape[0], block)
    parts = [jnp.stack(list(_sums(lhs[n : n + block], rhs[n : n + block], problem))) for n in starts]
    return jnp.sum(jnp.stack(parts), axis=(0, *range(2, 2 + problem.rank)))


def _sums(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> Iterator[jax.Array]:
    """Sums over examples for each feature of a group and each result position: (*window, features out)."""
    groups = problem.batch_groups
    rhs = rhs.astype(problem.accumulator)
    for feature in range(problem.batch // groups):
        seen = _repeated(lhs, feature, problem.out_features // groups, groups).astype(problem.accumulator)
        for tap in Windows.transposed(problem).slices(seen):
            yield functools.reduce(operator.add, (tap[n] * rhs[n] for n in range(tap.shape[0])))


def _group(problem: CanonicalConvolution) -> CanonicalConvolution:
    groups = problem.feature_groups
    return problem.but(
        in_features=problem.in_features // groups,
        out_features=problem.out_features // groups,
        feature_groups=1,
    )


def _applies_split(problem: CanonicalConvolution) -> bool:
    return problem.feature_groups > 1 and problem.is_floating


def _cost_split(problem: CanonicalConvolution, best: Best) -> float:
    return problem.feature_groups * best(_group(problem)) + traffic(problem.bytes_of(*problem.output_shape))


def _emit_split(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    groups, part = problem.feature_groups, _group(problem)
    if groups <= MOST_UNROLLED:
        operands = zip(jnp.split(lhs, groups, axis=-1), jnp.split(rhs, groups, axis=-1), strict=True)
        return jnp.concatenate([solve(a, b, part) for a, b in operands], axis=-1)
    parts = tuple(jnp.moveaxis(a.reshape(*a.shape[:-1], groups, -1), -2, 0) for a in (lhs, rhs))
    results = lax.map(lambda operands: solve(operands[0], operands[1], part), parts)
    return jnp.moveaxis(results, 0, -2).reshape(problem.output_shape)


def _regrouped(problem: CanonicalConvolution) -> CanonicalConvolution:
    """Rewrites batch groups as feature groups."""
    groups = problem.batch_groups
    return problem.but(
        batch=problem.batch // groups,
        in_features=problem.in_features * groups,
        feature_groups=groups,
        batch_groups=1,
    )


def _applies_regroup(problem: CanonicalConvolution) -> bool:
    return problem.batch_groups > 1 and problem.is_floating


def _cost_regroup(problem: CanonicalConvolution, best: Best) -> float:
    return best(_regrouped(problem)) + traffic(problem.bytes_of(*problem.input_shape))


def _emit_regroup(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    changed = _regrouped(problem)
    lhs = jnp.moveaxis(lhs.reshape(problem.batch_groups, -1, *lhs.shape[1:]), 0, -2)
    return solve(lhs.reshape(changed.input_shape), rhs, changed)


MULTIPLY_ADD = Plan(
    "multiply-add",
    "few products for each result: shifted inputs times weights, summed in one pass",
    _applies_multiply_add,
    _cost_multiply_add,
    _emit_multiply_add,
)
MULTIPLY_REDUCE = Plan(
    "multiply-reduce",
    "a depthwise filter's gradient: shifted inputs times the other operand, summed over the examples",
    _applies_multiply_reduce,
    _cost_multiply_reduce,
    _emit_multiply_reduce,
)
SPLIT = Plan("split", "the groups are convolved one by one", _applies_split, _cost_split, _emit_split)
REGROUP = Plan(
    "regroup", "groups of the batch become groups of features", _applies_regroup, _cost_regroup, _emit_regroup
)
PLANS = (MULTIPLY_ADD, MULTIPLY_REDUCE, SPLIT, REGROUP)
