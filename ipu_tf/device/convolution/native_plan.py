"""Convolution plans by the project's native kernels, on all cores: layers, and gradients of their inputs."""

from __future__ import annotations

import dataclasses

import jax

from ipu_tf.device.convolution.native.forward_convolution import (
    ForwardConvolution,
    dense_convolution,
    depthwise_convolution,
)
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
    is_float32_layer,
    whole_products,
    writing,
)
from ipu_tf.device.convolution.problem import CanonicalConvolution

#: Positions of images above which a convolution is as fast as a product of matrices.
MOST_PIXELS = 4096
#: Flops in a microsecond of a depthwise convolution.
DEPTHWISE_RATE = 150e3
#: The same of a dense one, features that are computed together, and bytes of filters that are packed in a microsecond.
DENSE_RATE, LANES, PACKED_BYTES = 420e3, 16, 40e3


def _applies_product(problem: CanonicalConvolution) -> bool:
    dense = is_float32_layer(problem) and problem.groups == 1 and problem.is_plain
    each = problem.taps == 1 and not problem.is_padded and set(problem.strides) <= {1}
    return dense and each and 0 < problem.pixels <= MOST_PIXELS and problem.products > 0


def _cost_product(problem: CanonicalConvolution, best: Best) -> float:
    return arithmetic(whole_products(problem, PRODUCT_WIDTH), PRODUCT_RATE) + writing(problem)


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
    packed = problem.bytes_of(*problem.kernel_shape) / PACKED_BYTES
    return CALL + arithmetic(whole_products(problem, LANES), DENSE_RATE) + writing(problem) + packed


def _emit_dense(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    return dense_convolution(lhs, rhs, forward_of(problem))


def _emit_turned_dense(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    return dense_convolution(lhs, rhs, dataclasses.replace(forward_of(problem), turned=True))


def convolution_bias_relu(
    lhs: jax.Array, rhs: jax.Array, bias: jax.Array, problem: CanonicalConvolution, pool: tuple[int, ...] | None = None
) -> jax.Array:
    """Computes `max(convolution + bias, 0)` of a problem whose plan is `NATIVE_DENSE`; pooled, if it `can_pool`."""
    return dense_convolution(lhs, rhs, dataclasses.replace(forward_of(problem), pool=pool), bias)


def can_pool(problem: CanonicalConvolution, pool: tuple[int, ...]) -> bool:
    """Returns whether the kernel for dense convolutions takes the largest of windows of the result, of these sizes."""
    return dataclasses.replace(forward_of(problem), pool=pool).is_dense()


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
PLANS = (NATIVE_PRODUCT, NATIVE_DEPTHWISE, NATIVE_DENSE)
