"""Convolution plan that calls oneDNN, on all cores."""

from __future__ import annotations

import jax

from ipu_tf.device.convolution import onednn
from ipu_tf.device.convolution.plan import CALL, ONEDNN, Best, Plan, Solve, arithmetic, traffic
from ipu_tf.device.convolution.problem import CanonicalConvolution

#: Flops in a microsecond on two cores; where each feature is convolved by itself.
RATE, DEPTHWISE_RATE = 330e3, 90e3
#: Microseconds to prepare a call.
PREPARE = 15.0
#: Features that are computed together.
WIDTH = 16
#: Bytes of a result above which another pass over it leaves the second cache.
FUSED_BYTES = 2e6
#: The largest extent of a window for which there is a fast kernel.
MOST_EXTENT = 25


def pays_to_fuse(problem: CanonicalConvolution) -> bool:
    """Returns whether bias and ReLU in the call spare more than the test for NaN costs, which reads the input."""
    result = problem.bytes_of(*problem.output_shape)
    return result >= FUSED_BYTES and problem.bytes_of(*problem.input_shape) <= 2 * result


def _applies(problem: CanonicalConvolution) -> bool:
    simple = problem.is_plain and problem.batch_groups == 1 and not problem.leading_contraction
    single = problem.dtype == problem.out_dtype == "float32"
    return simple and single and 1 <= problem.rank <= 3 and max(problem.window) <= MOST_EXTENT and _overlaps(problem)


def _overlaps(problem: CanonicalConvolution) -> bool:
    """Tests whether every window overlaps the input."""
    reaches = ((w - 1) * d for w, d in zip(problem.window, problem.window_dilation, strict=True))
    return all(max(padding) <= reach for padding, reach in zip(problem.padding, reaches, strict=True))


def _cost(problem: CanonicalConvolution, best: Best) -> float:
    moved = traffic(problem.bytes_of(*problem.output_shape)) / 2
    depthwise = problem.feature_groups == problem.in_features > 1
    if depthwise:
        return CALL + PREPARE + arithmetic(problem.products, DEPTHWISE_RATE) + moved
    wide = -(-problem.out_features // problem.feature_groups // WIDTH) * WIDTH * problem.feature_groups
    products = problem.products * wide // problem.out_features
    return CALL + PREPARE + arithmetic(products, RATE) + moved


def _emit(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    return onednn.convolution(lhs, rhs, problem)


ONEDNN_CONVOLUTION = Plan(
    "onednn",
    "oneDNN's kernels, compiled into XLA, run on all cores, where XLA's own convolution runs on one",
    _applies,
    _cost,
    _emit,
    calls=ONEDNN,
)
PLANS = (ONEDNN_CONVOLUTION,)
