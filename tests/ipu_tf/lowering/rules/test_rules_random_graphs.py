"""Random small programs of TensorFlow ops, and their gradients, agree with stock TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.lowering_parity import assert_same

rng = np.random.default_rng(0)
INPUTS = [rng.normal(size=shape).astype(np.float32) for shape in ((3, 4), (5, 2))]


def fitted(b: Any, a: Any) -> Any:
    """`b` repeated and cut to the shape of `a`."""
    repeats = [-(-wanted // size) for wanted, size in zip(a.shape, b.shape, strict=True)]
    return tf.tile(b, repeats)[: a.shape[0], : a.shape[1]]


def _loop(a: Any, b: Any, n: int) -> Any:
    body = lambda i, y: (i + 1, tf.tanh(y * 0.5 + fitted(b, a) * tf.cast(i, tf.float32)))  # noqa: E731
    return tf.while_loop(lambda i, _: i < n, body, (0, a), maximum_iterations=n)[1]


def _branch(a: Any, b: Any, n: int) -> Any:
    return tf.cond(INPUTS[0][0, n % 4] * tf.ones(()) > 0, lambda: a * 2.0, lambda: fitted(b, a) + a)


def _convolution(a: Any, b: Any, n: int) -> Any:
    kernel = fitted(b, tf.zeros((n, 3)))[:, :, None, None]
    return tf.nn.conv2d(a[None, :, :, None], kernel, 1, "SAME")[0, :, :, 0] / 3.0


def _pool(a: Any, b: Any, n: int) -> Any:
    return tf.nn.max_pool2d(a[None, :, :, None], (2, n), 1, "SAME")[0, :, :, 0]


def _segments(a: Any, b: Any, n: int) -> Any:
    return tf.math.unsorted_segment_sum(a, np.arange(a.shape[0]) % n, n)


def _scattered(a: Any, b: Any, n: int) -> Any:
    row = min(n, a.shape[0]) - 1
    return tf.tensor_scatter_nd_update(a, [[row]], fitted(b, a)[:1])


#: Each takes two matrices and a number from 1 to 3, and gives a matrix of values of moderate size.
STEPS: dict[str, Callable[[Any, Any, int], Any]] = {
    "add": lambda a, b, n: a + fitted(b, a),
    "multiply a row": lambda a, b, n: tf.tanh(a * fitted(b, a)[:1]),
    "divide by a column": lambda a, b, n: a / (1.0 + tf.abs(fitted(b, a)[:, :1])),
    "maximum": lambda a, b, n: tf.maximum(a, fitted(b, a) * 0.7),
    "select": lambda a, b, n: tf.where(fitted(b, a) > a, a * 0.5, a),
    "power": lambda a, b, n: tf.pow(tf.abs(a) + 0.5, n / 2),
    "softmax": lambda a, b, n: tf.nn.softmax(a * n),
    "elu": lambda a, b, n: tf.nn.elu(a),
    "sum": lambda a, b, n: tf.tanh(tf.reduce_sum(a, n % 2, keepdims=True)),
    "largest": lambda a, b, n: tf.reduce_max(a, n % 2, keepdims=True),
    # Of half the mean: what is left of equal columns would be their rounding errors.
    "deviation": lambda a, b, n: a - 0.5 * tf.reduce_mean(a, n % 2, keepdims=True),
    "matmul": lambda a, b, n: tf.tanh(tf.matmul(a, fitted(b, tf.transpose(a)))),
    "transpose": lambda a, b, n: tf.transpose(a),
    "reshape": lambda a, b, n: tf.reshape(a, (1, -1)) if n == 1 else tf.reshape(a, (-1, 1)),
    "concatenate": lambda a, b, n: tf.concat([a, fitted(b, a)], n % 2),
    "slice": lambda a, b, n: a[:: 1 + n % 2, : max(1, a.shape[1] - n)],
    "reverse": lambda a, b, n: tf.reverse(a, [n % 2]),
    "pad": lambda a, b, n: tf.pad(a, [[n, 0], [1, 1]]),
    "gather": lambda a, b, n: tf.gather(a, [0, a.shape[0] - 1, 0]),
    "cumulate": lambda a, b, n: tf.tanh(tf.cumsum(a, n % 2)),
    "sort": lambda a, b, n: tf.sort(a, direction="DESCENDING" if n == 2 else "ASCENDING"),
    "top": lambda a, b, n: tf.math.top_k(a, min(n, a.shape[1]))[0],
    "double": lambda a, b, n: tf.cast(tf.sin(tf.cast(a, tf.float64)), tf.float32),
    "loop": _loop,
    "branch": _branch,
    "convolution": _convolution,
    "pool": _pool,
    "segments": _segments,
    "scatter": _scattered,
}

Step = tuple[str, int, int, int]
STEP = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9), st.integers(1, 3))


def program(steps: list[Step]) -> Callable[..., Any]:
    """A function of the inputs that applies each step to two of the values so far, counted from the last."""

    def run(*inputs: Any) -> Any:
        values = list(inputs)
        for name, first, second, number in steps:
            a, b = (values[-1 - index % len(values)] for index in (first, second))
            values.append(STEPS[name](a, b, number))
        return values[-1]

    return run


def with_gradients(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function's result, and its inputs one step down their gradients.

    Gradients alone may be rounding errors around zero, which nothing can be held against.
    """

    def run(*inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            result = fn(*inputs)
            loss = tf.reduce_sum(tf.sin(result))
        gradients = tape.gradient(loss, inputs, unconnected_gradients="zero")
        return [result, *(value - gradient for value, gradient in zip(inputs, gradients, strict=True))]

    return run


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=7))
def test_a_random_program(steps: list[Step]) -> None:
    assert_same(program(steps), *map(tf.constant, INPUTS), rtol=1e-4)


@settings(max_examples=20, deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=5))
def test_a_random_gradient(steps: list[Step]) -> None:
    assert_same(with_gradients(program(steps)), *map(tf.constant, INPUTS), rtol=1e-4)
