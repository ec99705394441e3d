"""Convolution plan that uses XLA's own convolution, in the layout of its fast CPU kernels.

XLA:CPU rewrites convolutions into the form of its fast kernels only outside of loops, and in that form they
cost the same in a loop. So here is that form: batch, space, features; the kernel's features last; barriers,
so that the compiler does not fold the transposes back into the convolution.
"""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from ipu_tf.device.convolution.fast_kernel import has_odd_channels, is_overpadded, is_swapped, is_unpadded_and_large
from ipu_tf.device.convolution.plan import FLOPS, Best, Plan, Solve, arithmetic, traffic
from ipu_tf.device.convolution.problem import CanonicalConvolution, ConvLayout
from ipu_tf.device.convolution.simplifications import CROP

#: Rates in flops a microsecond of forms that XLA has no fast kernel for.
DOUBLE_RATE, VOLUME_RATE, LEADING_RATE, DILATED_RATE, UNPADDED_RATE = 90e3, 25e3, 30e3, 150e3, 28e3
OVERPADDED_RATE, GROUPED_RATE, GROUPED_SUM_RATE, SWAPPED_RATE = 165e3, 40e3, 1e3, 1e3
#: Microseconds beside the arithmetic: for each position of the result; with few features; for each tap of it
#: with an odd number of features; for each group of it.
PIXEL, FEW_FEATURES_PIXEL, ODD_TAP, GROUP_PIXEL = 0.003, 0.02, 0.0058, 0.1
FEW_FEATURES = 32
#: Features of a result that a core computes side by side.
LANES = 16
#: Bytes of a kernel above which it leaves a core's second cache, and how many are packed in a microsecond then.
LARGE_KERNEL, PACKED_BYTES = 1e6, 6e3


def library_convolution(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, layout: ConvLayout) -> jax.Array:
    """Computes the problem by `lax.conv_general_dilated`, its operands and result in `layout`."""
    numbers = lax.ConvDimensionNumbers(
        (layout.input_batch, layout.input_feature, *layout.input_spatial),
        (layout.kernel_output_feature, layout.kernel_input_feature, *layout.kernel_spatial),
        (layout.output_batch, layout.output_feature, *layout.output_spatial),
    )
    return lax.conv_general_dilated(
        lhs,
        rhs,
        window_strides=problem.strides,
        padding=problem.padding,
        lhs_dilation=problem.input_dilation,
        rhs_dilation=problem.window_dilation,
        dimension_numbers=numbers,
        feature_group_count=problem.feature_groups,
        batch_group_count=problem.batch_groups,
        precision=problem.precision,  # type: ignore[arg-type]
        preferred_element_type=np.dtype(problem.out_dtype),
    )


def _emit_canonical(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    lhs, rhs = lax.optimization_barrier((lhs, rhs))
    result = library_convolution(lhs, rhs, problem, ConvLayout.canonical(problem.rank))
    return lax.optimization_barrier(result)


def _rate(problem: CanonicalConvolution) -> float:
    rates = {
        LEADING_RATE * min(1.0, problem.out_features / LANES): problem.leading_contraction,
        VOLUME_RATE: problem.rank > 2,
        DILATED_RATE: not problem.is_plain,
        DOUBLE_RATE: problem.dtype == "float64",
        UNPADDED_RATE: is_unpadded_and_large(problem),
        OVERPADDED_RATE: is_overpadded(problem),
        SWAPPED_RATE: is_swapped(problem),
    }
    return min((rate for rate, applies in rates.items() if applies), default=FLOPS)


def _cost_canonical(problem: CanonicalConvolution, best: Best) -> float:
    if problem.groups > 1:
        summed = GROUPED_SUM_RATE if problem.leading_contraction else GROUPED_RATE
        return arithmetic(problem.products, summed) + GROUP_PIXEL * problem.pixels * problem.groups
    cost = arithmetic(problem.products, _rate(problem)) + PIXEL * problem.pixels
    if not problem.is_plain:
        cost += traffic(problem.bytes_of(problem.batch, *problem.input, problem.taps, problem.out_features))
    kernel = problem.bytes_of(*problem.kernel_shape)
    if kernel > LARGE_KERNEL:
        cost += kernel / PACKED_BYTES
    if problem.out_features < FEW_FEATURES:
        cost += FEW_FEATURES_PIXEL * problem.pixels
    if has_odd_channels(problem):
        cost += ODD_TAP * problem.pixels * problem.taps
    return cost


CANONICAL = Plan(
    "canonical",
    "the library's convolution in the form its fast kernels take",
    lambda problem: not CROP.applies(problem),  # XLA reads beyond an input that negative padding crops
    _cost_canonical,
    _emit_canonical,
)
PLANS = (CANONICAL,)
