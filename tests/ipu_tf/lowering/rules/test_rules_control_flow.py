"""Loops, branches and calls agree with TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.lowering_parity import Case, assert_same, lowered, run_module

rng = np.random.default_rng(0)
X = rng.normal(size=(3, 4)).astype(np.float32)
WHILE, CASE, IF = ("stablehlo.while",), ("stablehlo.case",), ("stablehlo.if",)


def _collatz(n: Any) -> Any:
    """Steps to 1: a loop whose count is not known before it ends."""

    def body(n: Any, steps: Any) -> Any:
        return tf.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    return tf.while_loop(lambda n, _: n > 1, body, (n, 0))[1]


def _nested(x: Any) -> Any:
    def outer(i: Any, x: Any) -> Any:
        _, y = tf.while_loop(lambda j, _: j < i, lambda j, y: (j + 1, y * 0.5 + tf.cast(j, y.dtype)), (0, x))
        return i + 1, tf.cond(tf.reduce_sum(y) > 2.0, lambda: y - x, lambda: y)

    return tf.while_loop(lambda i, _: i < 4, outer, (0, x))


def _loop_gradient(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y)), (0, x), maximum_iterations=3)[1]
    return tape.gradient(y, x)


def _switch(index: Any, x: Any) -> Any:
    return tf.switch_case(index, [lambda: x, lambda: -x, lambda: x * x])


def _choose(which: Any, x: Any) -> Any:
    return tf.cond(which, lambda: (tf.exp(x), tf.constant(1)), lambda: (x[::-1], tf.constant(2)))


CASES = [
    Case("while", _collatz, (np.int32(27),), WHILE, 0),
    Case("while not taken", _collatz, (np.int32(1),), WHILE, 0),
    Case("nested", _nested, (X,), (*WHILE, *IF)),
    Case("loop gradient", _loop_gradient, (X,), WHILE),
    Case("scan", lambda x: tf.scan(lambda a, b: a * 0.5 + b, x), (X,), (*WHILE, "func.call")),
    Case("if taken", _choose, (np.True_, X), IF),
    Case("if not taken", _choose, (np.False_, X), IF),
]
CASES += [Case(f"case {index}", _switch, (np.int32(index), X), CASE, 0) for index in (0, 1, 2, 7, -1)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_tensorflow(case: Case) -> None:
    case.check()


STARTS, LIMITS, STEPS = (-6, -3, -2, -1, 0, 1, 3), (-1, 0, 1, 2, 5), (1, 2, 3)
CONDITIONS: dict[str, Any] = {
    "<": lambda i, limit: i < limit,
    "<=": lambda i, limit: i <= limit,
    "> turned": lambda i, limit: limit > i,
    "not >=": lambda i, limit: tf.logical_not(i >= limit),
}


def _counted(x: Any, start: Any, limit: Any, step: Any, holds: Any) -> Any:
    """How often a loop runs."""
    return tf.while_loop(lambda i, _: holds(i, limit), lambda i, n: (i + step, n + x), (start, tf.zeros_like(x)))[1]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_loops_of_any_step_run_as_often_as_they_say(condition: str, step: int) -> None:
    """XLA has counted some of them as one iteration less, and some that run not at all as one."""
    grid = [(start, limit) for start in STARTS for limit in LIMITS]

    def counts(x: Any) -> list[Any]:
        return [_counted(x, start, limit, step, CONDITIONS[condition]) for start, limit in grid]

    found = run_module(lowered(counts, tf.constant(1.0)), np.float32(1))
    end = condition == "<="
    expected = [len(range(start, limit + end, step)) for start, limit in grid]
    assert [int(count) for count in found] == expected


def _folded(x: Any) -> Any:
    """XLA computes both ends and the step before it runs the loop."""
    size = tf.size(x)
    return _counted(x[0], size - 6, tf.reduce_prod(tf.shape(x)) - 3, size - 2, CONDITIONS["<"])


def _in_branch(x: Any) -> Any:
    return tf.cond(x[0] > 0.0, lambda: _counted(x[0], 0, 1, 2, CONDITIONS["<"]), lambda: x[0])


def _in_loop(x: Any) -> Any:
    def body(i: Any, total: Any) -> Any:
        return i + 1, total + _counted(x[0], -5, 0, tf.constant(2), CONDITIONS["<"])

    return tf.while_loop(lambda i, _: i < 3, body, (0, 0.0))[1]


def _in_function(x: Any) -> Any:
    return tf.function(lambda x: _counted(x[0], 3, 2, 2, CONDITIONS["<"]))(x)


@pytest.mark.parametrize("fn", [_folded, _in_branch, _in_loop, _in_function], ids=lambda fn: fn.__name__)
def test_loops_with_ends_that_xla_folds_run_as_often_as_tensorflows(fn: Any) -> None:
    assert_same(fn, tf.constant([1.0, 2.0, 3.0, 4.0]), ops=WHILE)
