"""What XLA:CPU's fast convolution kernel takes, and what makes XLA leave it."""

from __future__ import annotations

import math

from ipu_tf.device.convolution.problem import HALVES, CanonicalConvolution, Pairs

#: Above this, XLA copies the windows of a convolution without padding to memory.
UNPADDED_LIMIT = 10e6


def has_fast_kernel(problem: CanonicalConvolution) -> bool:
    """Tests whether there is one for such a problem at all, of two spatial axes."""
    return problem.rank == 2 and _is_simple(problem)


def _is_simple(problem: CanonicalConvolution) -> bool:
    return problem.dtype in (*HALVES, "float32") and problem.groups == 1 and problem.is_plain


def _patch_bytes(problem: CanonicalConvolution) -> int:
    return problem.bytes_of(problem.pixels, problem.taps, problem.in_features)


def is_unpadded_and_large(problem: CanonicalConvolution) -> bool:
    """Tests whether XLA writes the windows out to memory, as it does without padding, and that is slow."""
    return has_fast_kernel(problem) and not problem.is_padded and _patch_bytes(problem) > UNPADDED_LIMIT


def has_odd_channels(problem: CanonicalConvolution) -> bool:
    """Tests whether the kernel is slow because the number of features is odd."""
    odd = problem.in_features % 2 == 1 and problem.in_features > 1
    return odd and 24 <= problem.out_features < 48 and has_fast_kernel(problem)


def is_swapped(problem: CanonicalConvolution) -> bool:
    """Tests whether XLA exchanges input and kernel, as it does if the window is larger, which leaves its fast kernels.

    `AlgebraicSimplifierVisitor::SwapConvOperands` of XLA: it compares positions, and leaves out axes of one position.
    """
    sizes = zip(problem.input, problem.window, problem.strides, strict=True)
    axes = [(n, w) for n, w, stride in sizes if n > 1 or stride > 1]
    larger = math.prod(w for _, w in axes) > math.prod(n for n, _ in axes)
    return problem.rank <= 2 and _is_simple(problem) and larger


def written_padding(problem: CanonicalConvolution) -> Pairs:
    """Returns the padding that is written out: all of it, or what makes the result larger than the input."""
    return problem.padding if is_swapped(problem) else _excess(problem)


def _excess(problem: CanonicalConvolution) -> Pairs:
    """Returns the padding that makes the result larger than the input, half of it before each axis."""
    excess = []
    for padding, window, dilation in zip(problem.padding, problem.window, problem.window_dilation, strict=True):
        more = max(0, sum(padding) - (window - 1) * dilation)
        low = min(padding[0], more // 2 + max(0, more - more // 2 - padding[1]))
        excess.append((low, more - low))
    return tuple(excess)


def is_overpadded(problem: CanonicalConvolution) -> bool:
    """Tests whether padding makes the result larger than the input, which the kernel does not take."""
    return has_fast_kernel(problem) and any(map(any, _excess(problem)))
