"""Loops whose condition draws random numbers, prints or has state: it is evaluated once for each iteration."""

from __future__ import annotations

import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.lowering.stablehlo.errors import UnsupportedOpsError
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1


@pytest.mark.parametrize("drawn_in_body", [False, True])
def test_each_evaluation_draws_another_number(strategy: Strategy, drawn_in_body: bool) -> None:  # noqa: F811
    @tf.function
    def tosses() -> list[tf.Tensor]:
        def body(count: tf.Tensor, total: tf.Tensor) -> list[tf.Tensor]:
            return [count + 1, total + (tf.random.uniform([]) if drawn_in_body else 1.0)]

        return tf.while_loop(lambda count, total: tf.random.uniform([]) < 0.8, body, [0, 0.0])

    ipu.utils.reset_ipu_seed(3)
    with device_work() as work:
        found = [[float(each) for each in strategy.run(tosses)] for _ in range(60)]
    counts, totals = zip(*found, strict=True)
    assert work.counts.executions == 60 and len(set(counts)) > 5
    assert 2 < sum(counts) / 60 < 8  # 4, and 0.6 its standard deviation
    if drawn_in_body:  # of numbers below 0.8 alone, as the condition's, the mean would be 0.4
        assert 0.42 < sum(totals) / sum(counts) < 0.58


def test_a_condition_prints_once_for_each_evaluation(
    strategy: Strategy,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
) -> None:
    def goes_on(x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([ipu.internal_ops.print_tensor(x, "x")]):
            return tf.identity(x) < 100.0

    program = tf.function(lambda: tf.while_loop(goes_on, lambda x: x * 2.0, [1.0]))
    assert float(tf.nest.flatten(strategy.run(program))[0]) == 128.0
    printed = [line for line in capfd.readouterr().err.splitlines() if line.startswith("x")]
    assert len(printed) == 8


@pytest.mark.parametrize("kind", ["random", "print"])
def test_the_condition_of_a_loop_with_feeds_has_no_state(strategy: Strategy, kind: str) -> None:  # noqa: F811
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def goes_on(i: tf.Tensor) -> tf.Tensor:
        if kind == "random":
            return tf.random.uniform([]) < 0.5
        with tf.control_dependencies([ipu.internal_ops.print_tensor(i, "i")]):
            return tf.identity(i) < 3

    def body(i: tf.Tensor) -> list[tf.Tensor]:
        queue.enqueue(i)
        return [i + 1]

    with pytest.raises(UnsupportedOpsError, match="in the condition of a loop that uses feeds"):
        strategy.run(tf.function(lambda: tf.while_loop(goes_on, body, [0])))
