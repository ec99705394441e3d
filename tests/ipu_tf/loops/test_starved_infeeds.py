"""A program whose dataset gives nothing more ends after a timeout."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._loops.jax_feed import JaxFeed
from ipu_tf._loops.jax_step import JaxStep
from ipu_tf._loops.step_loop import StepLoop
from ipu_tf.device.environment import feed_timeout
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.starved import SECONDS, STARVED, Source, stuck  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1


def loop_of(steps: int, infeed: Any, outfeed: Any) -> Any:
    return tf.function(
        lambda: ipu.loops.repeat(steps, lambda t, x: (t + x, outfeed.enqueue(x)), [tf.constant(0.0)], infeed),
        autograph=False,
    )


@pytest.mark.parametrize("good", [0, 3])
def test_a_loop_gives_up_and_so_does_the_next(strategy: Strategy, stuck: Source, good: int) -> None:  # noqa: F811
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(stuck(good)), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    loop = loop_of(8, infeed, outfeed)
    began = time.monotonic()
    with pytest.raises(tf.errors.DeadlineExceededError, match=STARVED.format(good)):
        strategy.run(loop)
    assert SECONDS <= time.monotonic() - began < 30
    # The thread is still blocked in the dataset: the next reader waits for it.
    with pytest.raises(tf.errors.DeadlineExceededError, match="IPU_TF_FEED_TIMEOUT"):
        strategy.run(loop)


def test_one_element_an_execution(strategy: Strategy, stuck: Source) -> None:  # noqa: F811
    infeed = ipu.ipu_infeed_queue.IPUIterator(stuck(2))
    step = tf.function(lambda: next(infeed) + 1.0, autograph=False)
    assert [float(strategy.run(step)) for _ in range(2)] == [1.0, 2.0]
    with pytest.raises(tf.errors.DeadlineExceededError, match=STARVED.format(2)):
        strategy.run(step)


def test_a_queue_used_deep_in_a_program(strategy: Strategy, stuck: Source) -> None:  # noqa: F811
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(stuck(5))

    def inner(total: tf.Tensor) -> tf.Tensor:
        return ipu.loops.repeat(3, lambda t, x: t + x, [total], infeed)

    nested = tf.function(lambda: ipu.loops.repeat(3, inner, [tf.constant(0.0)]), autograph=False)
    with pytest.raises(tf.errors.DeadlineExceededError, match=STARVED.format(5)):
        strategy.run(nested)


def test_keras_fit(strategy: Strategy, stuck: Source) -> None:  # noqa: F811
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=4)
    data = stuck(2).map(lambda x: (tf.reshape(x, [1, 1]), tf.ones([1, 1])))
    with pytest.raises(tf.errors.DeadlineExceededError, match=STARVED.format(2)):
        model.fit(data, steps_per_epoch=4, verbose=0, shuffle=False)


@pytest.mark.parametrize("good", [0, 2])
def test_a_step_written_in_jax(strategy: Strategy, monkeypatch: pytest.MonkeyPatch, good: int) -> None:  # noqa: F811
    monkeypatch.setenv("IPU_TF_FEED_TIMEOUT", str(SECONDS))
    released = threading.Event()

    def elements() -> Iterator[np.ndarray]:
        yield from np.ones((good, 1), np.float32)
        released.wait(60)

    feed, total = JaxFeed(elements()), jnp.zeros(1)
    try:
        if good == 0:
            with pytest.raises(tf.errors.DeadlineExceededError, match="gave nothing for"):
                feed.spec()
            return
        loop = StepLoop(JaxStep(lambda t, x, updates: (x, t + x), total, feed.spec()))
        ran = loop.run(total, feed, 4)
        assert isinstance(ran.error, tf.errors.DeadlineExceededError)
        assert (ran.steps, float(ran.state[0])) == (2, 2.0)  # a first run begins with chunks of one step
    finally:
        released.set()


@pytest.mark.parametrize("text", ["soon", "0", "-3", "nan"])
def test_only_positive_numbers_of_seconds(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("IPU_TF_FEED_TIMEOUT", text)
    with pytest.raises(ValueError, match="IPU_TF_FEED_TIMEOUT must be a positive number of seconds. Received: '"):
        feed_timeout()


def test_ten_minutes_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IPU_TF_FEED_TIMEOUT", raising=False)
    assert feed_timeout() == 600
