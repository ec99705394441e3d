"""Convolution plans that use XLA's own convolution, in the layout of its fast CPU kernels, guarded from slow paths.

XLA:CPU rewrites convolutions into the form of its fast kernels only outside of loops, and in that form they
cost the same in a loop. So here is that form: batch, space, features; the kernel's features last; barriers,
so that the compiler does not fold the transposes back into the convolution.
"""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from ipu_tf.device.convolution.plan import FLOPS, Best, Plan, Solve, arithmetic, traffic
from ipu_tf.device.convolution.problem import HALVES, CanonicalConvolution, ConvLayout, Pairs
from ipu_tf.device.convolution.simplifications import CROP
from ipu_tf.device.convolution.windows import pad_spatial

#: Above this, XLA copies the windows of a convolution without padding to memory.
UNPADDED_LIMIT = 10e6
#: Rates in flops a microsecond of forms that XLA has no fast kernel for.
DOUBLE_RATE, VOLUME_RATE, LEADING_RATE, DILATED_RATE, UNPADDED_RATE = 90e3, 25e3, 30e3, 150e3, 28e3
OVERPADDED_RATE, GROUPED_RATE, GROUPED_SUM_RATE = 165e3, 40e3, 1e3
#: Microseconds beside the arithmetic: for each position of the result; with few features; for each tap of it
#: with an odd number of features; for each group of it.
PIXEL, FEW_FEATURES_PIXEL, ODD_TAP, GROUP_PIXEL = 0.003, 0.02, 0.0058, 0.1
FEW_FEATURES = 32
#: Features of a result that a core computes side by side.
LANES = 16


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


def _has_fast_kernel(problem: CanonicalConvolution) -> bool:
    typed = problem.dtype in (*HALVES, "float32")
    return typed and problem.rank == 2 and problem.groups == 1 and problem.is_plain


def _patch_bytes(problem: CanonicalConvolution) -> int:
    return problem.bytes_of(problem.pixels, problem.taps, problem.in_features)


def _is_unpadded_and_large(problem: CanonicalConvolution) -> bool:
    return _has_fast_kernel(problem) and not problem.is_padded and _patch_bytes(problem) > UNPADDED_LIMIT


def _pays_to_pad(problem: CanonicalConvolution) -> bool:
    """Tests whether the guard's padding is worth it: not if it makes the result larger than the input."""
    return _is_unpadded_and_large(problem) and not _is_overpadded(_guarded(problem))


def _rate(problem: CanonicalConvolution) -> float:
    rates = {
        LEADING_RATE * min(1.0, problem.out_features / LANES): problem.leading_contraction,
        VOLUME_RATE: problem.rank > 2,
        DILATED_RATE: not problem.is_plain,
        DOUBLE_RATE: problem.dtype == "float64",
        UNPADDED_RATE: _is_unpadded_and_large(problem),
        OVERPADDED_RATE: _is_overpadded(problem),
    }
    return min((rate for rate, applies in rates.items() if applies), default=FLOPS)


def _cost_canonical(problem: CanonicalConvolution, best: Best) -> float:
    if problem.groups > 1:
        summed = GROUPED_SUM_RATE if problem.leading_contraction else GROUPED_RATE
        return arithmetic(problem.products, summed) + GROUP_PIXEL * problem.pixels * problem.groups
    cost = arithmetic(problem.products, _rate(problem)) + PIXEL * problem.pixels
    if not problem.is_plain:
        cost += traffic(problem.bytes_of(problem.batch, *problem.input, problem.taps, problem.out_features))
    if problem.out_features < FEW_FEATURES:
        cost += FEW_FEATURES_PIXEL * problem.pixels
    if _has_odd_channels(problem):
        cost += ODD_TAP * problem.pixels * problem.taps
    return cost


def _has_odd_channels(problem: CanonicalConvolution) -> bool:
    odd = problem.in_features % 2 == 1 and problem.in_features > 1
    return odd and 24 <= problem.out_features < 48 and _has_fast_kernel(problem)


def _guarded(problem: CanonicalConvolution) -> CanonicalConvolution:
    """Returns the problem with one more zero after its longest axis."""
    axis = max(range(problem.rank), key=lambda a: problem.output[a])
    padding = tuple((low, high + (a == axis)) for a, (low, high) in enumerate(problem.padding))
    return problem.but(padding=padding)


def _cost_guarded(problem: CanonicalConvolution, best: Best) -> float:
    return best(_guarded(problem)) + traffic(problem.bytes_of(*problem.output_shape))


def _emit_guarded(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    return lax.slice(solve(lhs, rhs, _guarded(problem)), (0,) * (problem.rank + 2), problem.output_shape)


def _excess(problem: CanonicalConvolution) -> Pairs:
    """Returns the padding that makes the result larger than the input, half of it before each axis."""
    excess = []
    for padding, window, dilation in zip(problem.padding, problem.window, problem.window_dilation, strict=True):
        more = max(0, sum(padding) - (window - 1) * dilation)
        low = min(padding[0], more // 2 + max(0, more - more // 2 - padding[1]))
        excess.append((low, more - low))
    return tuple(excess)


def _is_overpadded(problem: CanonicalConvolution) -> bool:
    return _has_fast_kernel(problem) and any(map(any, _excess(problem)))


def _prepadded(problem: CanonicalConvolution) -> CanonicalConvolution:
    entries = zip(problem.input, problem.padding, _excess(problem), strict=True)
    changed = [(n + low + high, (before - low, after - high)) for n, (before, after), (low, high) in entries]
    return problem.but(input=tuple(n for n, _ in changed), padding=tuple(padding for _, padding in changed))


def _cost_prepadded(problem: CanonicalConvolution, best: Best) -> float:
    changed = _prepadded(problem)
    return best(changed) + traffic(problem.bytes_of(*changed.input_shape))


def _emit_prepadded(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    # A barrier, so that the compiler does not fold this padding back into the convolution.
    padded = lax.optimization_barrier(pad_spatial(lhs, _excess(problem)))
    return solve(padded, rhs, _prepadded(problem))


def _cost_widened(problem: CanonicalConvolution, best: Best) -> float:
    wider = problem.but(in_features=problem.in_features + 1)
    return best(wider) + traffic(problem.bytes_of(*wider.input_shape))


def _emit_widened(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    lhs = lax.pad(lhs, np.zeros((), lhs.dtype), [(0, 0, 0)] * (problem.rank + 1) + [(0, 1, 0)])
    rhs = pad_spatial(rhs[None], ((0, 0),) * problem.rank + ((0, 1),))[0]
    return solve(lhs, rhs, problem.but(in_features=problem.in_features + 1))


CANONICAL = Plan(
    "canonical",
    "the library's convolution in the form its fast kernels take",
    lambda problem: not CROP.applies(problem),  # XLA reads beyond an input that negative padding crops
    _cost_canonical,
    _emit_canonical,
)
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
    _has_odd_channels,
    _cost_widened,
    _emit_widened,
)
PREPADDED = Plan(
    "prepadded",
    "the library's fast kernel does not take padding that makes the result larger than the input",
    _is_overpadded,
    _cost_prepadded,
    _emit_prepadded,
)
PLANS = (CANONICAL, GUARDED, PREPADDED, WIDENED)
