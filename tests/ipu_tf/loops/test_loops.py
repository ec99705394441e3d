"""Loops without feeds, and what a loop refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1


def run(strategy: Strategy, function: Callable[[], Any]) -> Any:  # noqa: F811
    """The result of a function on the device."""
    return strategy.run(tf.function(function, autograph=False))


@pytest.mark.parametrize("n", [0, 1, 5])
def test_repeat(strategy: Strategy, n: int) -> None:  # noqa: F811
    assert float(run(strategy, lambda: ipu.loops.repeat(n, lambda x: x * 2, [1.0]))) == 2.0**n


def test_repeat_by_a_tensor(strategy: Strategy) -> None:  # noqa: F811
    program = tf.function(lambda n: ipu.loops.repeat(n, lambda x: x + 1, 0), autograph=False)
    assert [int(strategy.run(program, [tf.constant(n)])) for n in (3, 7)] == [3, 7]


def test_several_values_come_back_as_a_list(strategy: Strategy) -> None:  # noqa: F811
    result = run(strategy, lambda: ipu.loops.repeat(3, lambda a, b: (b, a + b), [0, 1]))
    assert [int(value) for value in result] == [2, 3]


def test_operations_of_a_body_run_each_time(strategy: Strategy) -> None:  # noqa: F811
    count = tf.Variable(0)

    def program() -> None:
        ipu.loops.repeat(4, lambda: count.assign_add(1).op, [])

    run(strategy, program)
    assert int(count) == 4


def test_maximum_iterations(strategy: Strategy) -> None:  # noqa: F811
    loop = lambda: ipu.loops.while_loop(lambda x: x < 100, lambda x: x + 1, [0], maximum_iterations=7)  # noqa: E731
    assert int(run(strategy, loop)) == 7


def test_wrong_number_of_arguments() -> None:
    graph = tf.Graph()
    with graph.as_default(), pytest.raises(TypeError, match="You specified 1 inputs: .*, but the loop body needs"):
        ipu.loops.repeat(2, lambda a, b: a, [1.0])
    with graph.as_default(), pytest.raises(TypeError, match="but the loop condition needs"):
        ipu.loops.while_loop(lambda: True, lambda a: a, [1.0])


def test_a_body_that_changes_a_dtype() -> None:
    with tf.Graph().as_default(), pytest.raises(TypeError, match="Mismatch between input types and output types"):
        ipu.loops.repeat(2, lambda a: tf.cast(a, tf.int32), [1.0])


def test_operations_before_tensors() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="zero or more Tensor values followed by"):
        ipu.loops.repeat(2, lambda a: (tf.no_op(), a), [1.0])
