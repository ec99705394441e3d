"""Convolution plans by the project's native kernels, on all cores: layers, and gradients of inputs and of filters."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from ipu_tf.device.convolution.native.filter_gradient import FilterGradient, filter_gradient
from ipu_tf.device.convolution.native.forward_convolution import (
    ForwardConvolution,
    dense_convolution,
    depthwise_convolution,
)
from ipu_tf.device.convolution.native.matrix_product import MatrixProduct, matrix_product
from ipu_tf.device.convolution.plan import (
    CALL,
    NATIVE,
    Best,
    Plan,
    Solve,
    arithmetic,
    is_float32_layer,
    whole,
    writing,
)
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.windows import batch_first

#: Flops in a microsecond on two cores; where the input is written out for each feature.
RATE, BY_FEATURE_RATE = 400e3, 150e3
#: Microseconds to begin a call, and flops in a microsecond where a block of sums has one tap only.
BEGIN, ONE_TAP_RATE = 5.0, 240e3
#: Flops in a microsecond of a product of matrices, and positions of images above which a convolution is as fast.
PRODUCT_RATE, MOST_PIXELS = 400e3, 4096
#: Bytes in a microsecond of images that a product sums over: each is read by many units of work.
PRODUCT_BYTES = 17e3
#: Features out that a product computes together.
WIDTH = 32
#: Flops in a microsecond of a depthwise convolution.
DEPTHWISE_RATE = 150e3
#: The same of a dense one, features that are computed together, and bytes of filters that are packed in a microsecond.
DENSE_RATE, LANES, PACKED_BYTES = 420e3, 16, 40e3


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
    positions = problem.in_features * math.prod(problem.window)
    return MatrixProduct.of(problem.batch, positions, problem.out_features, turned=True)


def _applies_product_gradient(problem: CanonicalConvolution) -> bool:
    if not _applies(problem) or problem.groups > 1 or min(problem.batch, problem.out_features) < WIDTH:
        return False
    shapes = gradient_of(problem)
    one_tap = math.prod(shapes.window) == 1 and shapes.input == shapes.output
    return one_tap and {*shapes.strides} == {1} and not any(shapes.low) and _product_gradient(problem).pays()


def _cost_product_gradient(problem: CanonicalConvolution, best: Best) -> float:
    wide = gradient_of(problem).products // problem.out_features * whole(problem.out_features, WIDTH)
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


def _applies_product(problem: CanonicalConvolution) -> bool:
    dense = is_float32_layer(problem) and problem.groups == 1 and problem.is_plain
    each = problem.taps == 1 and not problem.is_padded and set(problem.strides) <= {1}
    return dense and each and 0 < problem.pixels <= MOST_PIXELS and problem.products > 0


def _cost_product(problem: CanonicalConvolution, best: Best) -> float:
    wide = problem.products // problem.out_features * whole(problem.out_features, WIDTH)
    return arithmetic(wide, PRODUCT_RATE) + writing(problem)


def _product(problem: CanonicalConvolution) -> MatrixProduct:
    return MatrixProduct.of(problem.pixels, problem.in_features, problem.out_features)


def _emit_product(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    return matrix_product(lhs, rhs, _product(problem), shape=problem.output_shape)


def _emit_turned_product(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    turned = dataclasses.replace(_product(problem), right=(1, problem.in_features))
    return matrix_product(lhs, rhs, turned, shape=problem.output_shape)


NATIVE_PRODUCT = Plan(
    "native product",
    "each result sees one position of small images: the project's own product of matrices, on all cores",
    _applies_product,
    _cost_product,
    _emit_product,
    calls=NATIVE,
    emit_turned=_emit_turned_product,
)


def forward_of(problem: CanonicalConvolution) -> ForwardConvolution:
    """Returns the shapes of a problem as the kernels for layers, and for gradients of their inputs, have them."""
    return ForwardConvolution(
        images=problem.batch,
        in_features=problem.in_features,
        out_features=problem.out_features,
        groups=problem.groups,
        input=problem.input,
        window=problem.window,
        output=problem.output,
        strides=problem.strides,
        spread=problem.input_dilation,
        dilation=problem.window_dilation,
        low=tuple(low for low, _ in problem.padding),
    )


def _applies_depthwise(problem: CanonicalConvolution) -> bool:
    return is_float32_layer(problem) and forward_of(problem).is_depthwise()


def _cost_depthwise(problem: CanonicalConvolution, best: Best) -> float:
    return CALL + arithmetic(problem.products, DEPTHWISE_RATE) + writing(problem)


def _emit_depthwise(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    return depthwise_convolution(lhs, rhs, forward_of(problem))


def _applies_dense(problem: CanonicalConvolution) -> bool:
    return is_float32_layer(problem) and forward_of(problem).is_dense()


def _cost_dense(problem: CanonicalConvolution, best: Best) -> float:
    wide = problem.products // problem.out_features * whole(problem.out_features, LANES)
    packed = problem.bytes_of(*problem.kernel_shape) / PACKED_BYTES
    return CALL + arithmetic(wide, DENSE_RATE) + writing(problem) + packed


def _emit_dense(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    return dense_convolution(lhs, rhs, forward_of(problem))


def _emit_turned_dense(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    return dense_convolution(lhs, rhs, dataclasses.replace(forward_of(problem), turned=True))


def convolution_bias_relu(lhs: jax.Array, rhs: jax.Array, bias: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Computes `max(convolution + bias, 0)` of a problem whose plan is `NATIVE_DENSE`."""
    return dense_convolution(lhs, rhs, forward_of(problem), bias)


NATIVE_DEPTHWISE = Plan(
    "native depthwise",
    "each feature is convolved by itself: the project's own kernel, on all cores",
    _applies_depthwise,
    _cost_depthwise,
    _emit_depthwise,
    calls=NATIVE,
)
NATIVE_DENSE = Plan(
    "native dense",
    "sums over a window stay in registers: the project's own kernel, on all cores",
    _applies_dense,
    _cost_dense,
    _emit_dense,
    calls=NATIVE,
    emit_turned=_emit_turned_dense,
)
PLANS = (NATIVE_FILTER_GRADIENT, NATIVE_PRODUCT_GRADIENT, NATIVE_PRODUCT, NATIVE_DEPTHWISE, NATIVE_DENSE)
