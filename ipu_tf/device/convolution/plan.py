"""`Plan`: one way to compute a convolution, with its CPU cost model.

The figures were measured with JAX 0.10 on two cores of an AMD Zen 5, inside `while` loops. Only their
ratios matter: they decide between plans. All times are in microseconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax

from ipu_tf.device.convolution.problem import CanonicalConvolution

#: Multiplications and additions in a microsecond, in XLA's matrix products and convolutions.
FLOPS = 200e3
#: Bytes moved in a microsecond while they stay in the last-level cache, and once they do not.
CACHED_BYTES = 20e3
UNCACHED_BYTES = 3.5e3
#: What stays in the cache while other arrays are there too.
CACHE = 16e6
#: Starting one operation.
CALL = 3.0
#: Of a native product of matrices: multiplications and additions in a microsecond, features out computed together.
PRODUCT_RATE, PRODUCT_WIDTH = 400e3, 32
#: Native code that plans call: oneDNN in XLA, and the project's own library.
ONEDNN, NATIVE = "onednn", "native"

Solve = Callable[[jax.Array, jax.Array, CanonicalConvolution], jax.Array]
Best = Callable[[CanonicalConvolution], float]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Convolution plan: applicability, estimated cost, implementation.

    Attributes:
        name: how it is called in explanations.
        why: when it is fast, in a few words.
        applies: whether a problem can be computed so. It must then be right.
        cost: an estimate in microseconds, given what the best plan for a smaller problem costs.
        emit: computes (input, kernel, problem) in canonical order, given how to compute smaller problems.
        calls: the native code that it calls, `ONEDNN` or `NATIVE`; empty if none.
        emit_turned: computes (input, kernel, problem) from a turned kernel, if it can: that of the layer whose gradient
            the problem is, `[*window, out_features, in_features]` with each axis of the window reversed.
    """

    name: str
    why: str
    applies: Callable[[CanonicalConvolution], bool]
    cost: Callable[[CanonicalConvolution, Best], float]
    emit: Callable[[jax.Array, jax.Array, CanonicalConvolution, Solve], jax.Array]
    calls: str = ""
    emit_turned: Callable[[jax.Array, jax.Array, CanonicalConvolution], jax.Array] | None = None


def arithmetic(products: float, rate: float = FLOPS) -> float:
    """Estimates the time of so many multiply-adds."""
    return CALL + 2 * products / rate


def traffic(size: float) -> float:
    """Estimates the time to write or copy an array of `size` bytes."""
    return CALL + size / (CACHED_BYTES if size <= CACHE else UNCACHED_BYTES)


def writing(problem: CanonicalConvolution) -> float:
    """Estimates the time to write a result while it is computed."""
    return traffic(problem.bytes_of(*problem.output_shape)) / 2


def whole(count: int, width: int) -> int:
    """Rounds a number of features up to those that are computed together.

    Example:
        >>> [whole(count, 16) for count in (1, 16, 17)]
        [16, 16, 32]
    """
    return -(-count // width) * width


def whole_products(problem: CanonicalConvolution, width: int) -> int:
    """Returns the multiplications of a problem whose features out are computed `width` together."""
    return problem.products // problem.out_features * whole(problem.out_features, width)


def is_float32_layer(problem: CanonicalConvolution) -> bool:
    """Returns whether operands and result are float32, and it is no gradient of filters: no sum over examples."""
    single = problem.dtype == problem.out_dtype == "float32"
    return single and problem.batch_groups == 1 and not problem.leading_contraction
