"""Elements of a run that fails in the middle of a chunk: those that did not run are the next run's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1
STEPS = 32


def checked(x: tf.Tensor, bad: float) -> None:
    """An assertion."""
    tf.debugging.Assert(x != bad, [x])


def finite(x: tf.Tensor, bad: float) -> None:
    """A check for numbers that are none."""
    tf.debugging.check_numerics(1.0 / (x - bad), "one of them")


@pytest.mark.parametrize("check", [checked, finite])
def test_a_failing_element_is_the_last_that_is_used(strategy: Strategy, check: Callable[[Any, float], None]) -> None:  # noqa: F811
    numbers = tf.data.Dataset.range(1000).map(lambda i: tf.cast(i, tf.float32))
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(x: tf.Tensor) -> Any:
        for bad in (5.0, 45.0):
            check(x, bad)
        return outfeed.enqueue(x)

    loop = tf.function(lambda: ipu.loops.repeat(STEPS, body, [], infeed) and None, autograph=False)
    for number, first in ((5, 0), (45, 6)):
        with pytest.raises(tf.errors.InvalidArgumentError):
            while True:
                strategy.run(loop)
        assert outfeed.dequeue().numpy().tolist() == list(range(first, number + 1))
    strategy.run(loop)
    assert outfeed.dequeue().numpy().tolist() == list(range(46, 46 + STEPS))
