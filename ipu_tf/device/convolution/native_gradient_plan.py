"""Convolution plans for gradients of filters by the project's native kernels, on all cores."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipu_tf.device.convolution.native.filter_gradient import FilterGradient, filter_gradient
from ipu_tf.device.convolution.native.matrix_product import MatrixProduct, matrix_product
from ipu_tf.device.convolution.plan import (
    CALL,
    NATIVE,
    PRODUCT_RATE,
    PRODUCT_WIDTH,
    Best,
    Plan,
    Solve,
    arithmetic,
    whole,
)
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.windows import batch_first

#: Flops in a microsecond on two cores; where the input is written out for each feature.
RATE, BY_FEATURE_RATE = 400e3, 150e3
#: Microseconds to begin a call, and flops in a microsecond where a block of sums has one tap only.
BEGIN, ONE_TAP_RATE = 5.0, 240e3
#: Bytes in a microsecond that a product of matrices reads.
PRODUCT_BYTES = 20e3
#: Positions of the images above which the other kernel is as fast: each unit of work of a product reads them all.
MOST_POSITIONS = 4096


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


def _product_gradient(problem: CanonicalConvolution) -> MatrixProduct:
    """Returns the product that the gradient of filters of one tap is: of all positions of the images."""
    return MatrixProduct.of(problem.batch, problem.in_features * problem.taps, problem.out_features, turned=True)


def _applies_product_gradient(problem: CanonicalConvolution) -> bool:
    if not _applies(problem) or problem.groups > 1 or min(problem.batch, problem.out_features) < PRODUCT_WIDTH:
        return False
    shapes = gradient_of(problem)
    one_tap = problem.positions == 1 and shapes.input == shapes.output
    plain = {*shapes.strides} == {1} and not any(shapes.low)
    form = _product_gradient(problem)
    return one_tap and plain and form.inner <= MOST_POSITIONS and form.pays()


def _cost_product_gradient(problem: CanonicalConvolution, best: Best) -> float:
    wide = gradient_of(problem).products // problem.out_features * whole(problem.out_features, PRODUCT_WIDTH)
    positions = problem.bytes_of(problem.in_features, *problem.window, problem.batch + problem.out_features)
    return CALL + arithmetic(wide, PRODUCT_RATE) + positions / PRODUCT_BYTES


def _emit_product_gradient(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    return matrix_product(*batch_first(lhs, rhs), _product_gradient(problem), shape=problem.output_shape)


NATIVE_PRODUCT_GRADIENT = Plan(
    "native product gradient",
    "a sum over all positions with one result each: the project's own product of matrices, on all cores",
    _applies_product_gradient,
    _cost_product_gradient,
    _emit_product_gradient,
    calls=NATIVE,
)
PLANS = (NATIVE_FILTER_GRADIENT, NATIVE_PRODUCT_GRADIENT)
