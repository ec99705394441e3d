"""What host callbacks of loops in loops raise comes out of the program that they belong to, as it was raised."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.feeds import callbacks
from ipu_tf.device.feeds.jax_effects import silence_callback_errors
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1
Infeed, Outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue, ipu.ipu_outfeed_queue.IPUOutfeedQueue


def numbers(count: int) -> Any:
    return Infeed(tf.data.Dataset.range(count).map(lambda i: tf.cast(i, tf.float32)))


def nested(infeed: Any, outfeed: Any) -> Any:
    """A program whose inner loop of three steps uses the feeds."""

    def outer(count: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([ipu.loops.repeat(3, outfeed.enqueue, [], infeed)]):
            return count + 1

    return tf.function(lambda: ipu.loops.repeat(2, outer, [tf.constant(0)]), autograph=False)


def test_a_deleted_outfeed_of_an_inner_loop_is_named(strategy: Strategy) -> None:  # noqa: F811
    outfeed = Outfeed()
    program = nested(numbers(100), outfeed)
    strategy.run(program)
    assert outfeed.dequeue().numpy().tolist() == list(range(6))
    assert outfeed.deleter is None
    with pytest.raises(tf.errors.NotFoundError, match=r"outfeed '?outfeed_\d+"):
        strategy.run(program)


def test_another_program_does_not_take_an_error_away(
    strategy: Strategy,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one runs after a callback has failed, before the program that it belongs to raises what it raised."""
    good, reset, ran = nested(numbers(100), Outfeed()), callbacks.reset_ordered_effects, list[bool]()

    def run_another() -> None:
        thread = threading.Thread(target=strategy.run, args=[good])
        thread.start()
        thread.join(60)
        ran.append(not thread.is_alive())
        reset()

    bad = nested(numbers(4), Outfeed())
    monkeypatch.setattr(callbacks, "reset_ordered_effects", run_another)
    with pytest.raises(tf.errors.OutOfRangeError, match="ran out of data after 4 elements"):
        strategy.run(bad)
    assert ran == [True]


def test_the_log_of_callbacks_is_as_before_when_the_last_program_has_ended() -> None:
    log = logging.getLogger("jax._src.callback")
    first, last = silence_callback_errors(), silence_callback_errors()
    first.__enter__()
    last.__enter__()
    first.__exit__(None, None, None)
    assert log.disabled
    last.__exit__(None, None, None)
    assert not log.disabled
