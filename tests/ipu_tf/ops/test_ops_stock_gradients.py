"""Gradients that XLA computes otherwise than TensorFlow's CPU kernels: on the device they are the latter's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.one_ipu import strategy
from tests.helpers.ops_parity import on_device

__all__ = ["strategy"]

Function = Callable[[Any], Any]


def gradients(function: Function) -> Callable[..., list[Any]]:
    """A function of an array and of the gradient of its result: the first gradient, and those of it."""

    def both(x: Any, upstream: Any) -> list[Any]:
        with tf.GradientTape() as second:
            second.watch([x, upstream])
            with tf.GradientTape() as first:
                first.watch(x)
                result = function(x)
            gradient = first.gradient(result, x, output_gradients=upstream)
        return [gradient, *second.gradient(gradient, [x, upstream])]

    return both


def assert_same(strategy: Any, function: Function, x: np.ndarray) -> None:
    upstream = np.arange(1, x.size + 1).reshape(x.shape).astype(x.dtype) * (1 - 2j if x.dtype.kind == "c" else 1)
    both = gradients(function)
    wanted = both(tf.constant(x), tf.constant(upstream, x.dtype))
    for got, stock in zip(on_device(strategy, both, x, upstream.astype(x.dtype)), wanted, strict=True):
        assert (got.dtype, got.shape) == (stock.dtype.as_numpy_dtype, stock.shape)
        np.testing.assert_allclose(got.astype(np.complex64), stock.numpy().astype(np.complex64), 2e-3, 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_slope_of_selu_at_zero(strategy: Any, dtype: str) -> None:
    """As at the units of padding and of masks."""
    assert_same(strategy, tf.nn.selu, np.array([0.0, -0.0, 1.0, -1.0, -30.0, 3.0], dtype))


ROOTS: dict[str, Function] = {
    "reciprocal": tf.math.reciprocal,
    "sqrt": tf.sqrt,
    "rsqrt": tf.math.rsqrt,
    "log": tf.math.log,
    "log1p": tf.math.log1p,
    "tan": tf.tan,
    "asin": tf.asin,
    "atan": tf.atan,
    "atanh": tf.atanh,
}
"""Each has the gradient of a reciprocal or of a root in its first or second one."""


@pytest.mark.parametrize("name", ROOTS)
@pytest.mark.parametrize("dtype", ["complex64", "float32"])
def test_gradients_of_roots_and_reciprocals(strategy: Any, name: str, dtype: str) -> None:
    numbers = {"complex64": [0.5 + 1j, -1.5 + 0.25j, 0.25 - 2j], "float32": [0.125, 0.25, 0.75]}
    assert_same(strategy, ROOTS[name], np.array(numbers[dtype], dtype))
