"""Survey: where infinities, NaN and what XLA simplifies make other numbers than TensorFlow's CPU kernels have.

docs/differences.md names each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.one_ipu import strategy
from tests.helpers.ops_parity import on_device

__all__ = ["strategy"]

NAN, INF = np.nan, np.inf


def gradient(function: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    def of(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x, output_gradients=upstream)

    return of


#: A function and its operands; what TensorFlow's CPU kernels give, and what the device and compiled functions give.
SURVEY: dict[str, tuple[Callable[..., Any], list[Any], Any, Any]] = {
    "gradient of relu": (gradient(tf.nn.relu), [[-1, 2, -1], [INF, 1, NAN]], [NAN, 1, NAN], [0, 1, 0]),
    "gradient of relu6": (gradient(tf.nn.relu6), [[-1, 2, 7], [INF, 1, NAN]], [NAN, 1, NAN], [0, 1, 0]),
    "softmax_cross_entropy_with_logits": (
        lambda labels, logits: tf.nn.softmax_cross_entropy_with_logits(labels, logits),
        [[[0, 1]], [[-INF, 1]]],
        [NAN],
        [0],
    ),
    "log of exp": (lambda x: tf.math.log(tf.exp(x)), [[100]], [INF], [100]),
    "sqrt of a square": (lambda x: tf.sqrt(x * x), [[1e30, 1e-30]], [INF, 0], [1e30, 1e-30]),
    "power of a power": (lambda x: (x**2.0) ** 0.5, [[1e30]], [INF], [1e30]),
    "exp times exp": (lambda x: tf.exp(x) * tf.exp(-x), [[100]], [NAN], [1]),
    "product and quotient": (lambda x: x * 2.0 / 2.0, [[3e38]], [INF], [3e38]),
    "sum and difference": (lambda x: x + 1e30 - 1e30, [[1]], [0], [1]),
    "1 / top_k": (lambda x: 1 / tf.math.top_k(x, 2).values, [[-0.0, 0, -1]], [-INF, INF], [INF, -INF]),
    "top_k": (lambda x: tf.math.top_k(x, 3).values, [[-3, NAN, 2, NAN, 5]], [NAN, 5, 2], [NAN, NAN, 5]),
}


@pytest.mark.parametrize("name", SURVEY)
def test_what_the_cpu_kernels_compute_and_what_the_device_does(strategy: Any, name: str) -> None:
    function, operands, stock, mine = SURVEY[name]
    given = [np.array(operand, np.float32) for operand in operands]
    np.testing.assert_allclose(function(*[tf.constant(operand) for operand in given]), np.float32(stock), rtol=1e-6)
    np.testing.assert_allclose(on_device(strategy, function, *given), np.float32(mine), rtol=1e-6)
    compiled = tf.function(function, jit_compile=True, autograph=False)
    np.testing.assert_allclose(compiled(*[tf.constant(operand) for operand in given]), np.float32(mine), rtol=1e-6)
