"""Convolution plan for filter gradients: the project's own native kernel, on all cores."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipu_tf.device.convolution.native.filter_gradient import FilterGradient, filter_gradient
from ipu_tf.device.convolution.plan import CALL, NATIVE, Best, Plan, Solve, arithmetic
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.windows import batch_first

#: Flops in a microsecond on two cores; where the input is written out for each feature.
RATE, BY_FEATURE_RATE = 400e3, 150e3
#: Microseconds to begin a call, and flops in a microsecond where a block of sums has one tap only.
BEGIN, ONE_TAP_RATE = 5.0, 120e3


def gradient_of(problem: CanonicalConvolution) -> FilterGradient:
    """Returns the filter gradient that a problem is: its features are the examples, its result the filters."""
    return FilterGradient(
        images=problem.in_features,
        in_features=problem.batch,
        out_features=problem.out_features,
        groups=problem.batch_groups,
        input=problem.input,
        window=problem.output,
        output=problem.window,
        strides=problem.window_dilation,
        dilation=problem.strides,
        low=tuple(low for low, _ in problem.padding),
    )


def _applies(problem: CanonicalConvolution) -> bool:
    single = problem.dtype == problem.out_dtype == "float32"
    summed = problem.leading_contraction and problem.feature_groups == 1 and 1 <= problem.rank <= 3
    plain = all(dilation == 1 for dilation in problem.input_dilation)
    return single and summed and plain and problem.products > 0 and gradient_of(problem).fits()


def _cost(problem: CanonicalConvolution, best: Best) -> float:
    shapes = gradient_of(problem)
    rate = BY_FEATURE_RATE if shapes.by_feature else RATE if problem.output[-1] > 1 else ONE_TAP_RATE
    return CALL + BEGIN + arithmetic(shapes.products, rate)


def _emit(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    [filters] = filter_gradient(*batch_first(lhs, rhs), gradient_of(problem))
    return jnp.moveaxis(filters, -2, 0)


NATIVE_FILTER_GRADIENT = Plan(
    "native filter gradient",
    "a sum over examples with few results: the project's own kernel, on all cores",
    _applies,
    _cost,
    _emit,
    calls=NATIVE,
)
PLANS = (NATIVE_FILTER_GRADIENT,)
