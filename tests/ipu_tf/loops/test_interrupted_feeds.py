"""Ctrl-C while a program waits for data: it ends soon, and the next run goes on with the next element."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.sigint import press_ctrl_c, press_when_it_waits, sigint_interrupts  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1
Infeed, Outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue, ipu.ipu_outfeed_queue.IPUOutfeedQueue
pytestmark = pytest.mark.usefixtures("sigint_interrupts")
MANY = 10**6


class Source:
    """Data 0., 1., ... which presses Ctrl-C before one of its elements and gives the others slowly, or later.

    Args:
        slow_from: the element.
        then: called before that and each other element.
        presses: whether it does; else the test itself does, as data that is prefetched is read between runs as well.

    Attributes:
        given: how many elements were given.
        pressed_at: when it pressed it.
    """

    def __init__(self, slow_from: int, then: Callable[[], Any], presses: bool = True) -> None:
        self.given = 0
        self.pressed_at = 0.0
        self._slow_from, self._then, self._presses = slow_from, then, presses

    def _elements(self) -> Iterator[np.float32]:
        for number in range(MANY):
            if number == self._slow_from and self._presses:
                self.pressed_at = time.monotonic()
                press_ctrl_c()
            if number >= self._slow_from:
                self._then()
            self.given = number + 1
            yield np.float32(number)

    @property
    def dataset(self) -> tf.data.Dataset:
        """The data."""
        return tf.data.Dataset.from_generator(self._elements, output_signature=tf.TensorSpec([], tf.float32))


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event that sources wait for, set at the end."""
    monkeypatch.setenv("IPU_TF_FEED_TIMEOUT", "30")
    event = threading.Event()
    yield event
    event.set()


def repeated(infeed: Any, outfeed: Any) -> Any:
    return tf.function(lambda n: ipu.loops.repeat(n, outfeed.enqueue, [], infeed) and None, autograph=False)


def test_slow_data_is_not_read_to_the_end_of_a_chunk(strategy: Strategy) -> None:  # noqa: F811
    source = Source(3000, lambda: time.sleep(0.005))
    infeed, outfeed = Infeed(source.dataset), Outfeed()
    loop = repeated(infeed, outfeed)
    with pytest.raises(KeyboardInterrupt):
        strategy.run(loop, [tf.constant(MANY)])
    assert source.given < 3000 + 400  # a chunk has 1024, and another one is staged ahead
    strategy.run(loop, [tf.constant(3)])
    elements = outfeed.dequeue().numpy()
    np.testing.assert_array_equal(elements, np.arange(len(elements)))
    assert len(elements) > 2000


def test_data_that_does_not_come_holds_up_no_loop(strategy: Strategy, released: threading.Event) -> None:  # noqa: F811
    source = Source(40, lambda: released.wait(60))
    infeed, outfeed = Infeed(source.dataset), Outfeed()
    loop = repeated(infeed, outfeed)
    with pytest.raises(KeyboardInterrupt):
        strategy.run(loop, [tf.constant(MANY)])
    assert time.monotonic() - source.pressed_at < 15
    released.set()
    strategy.run(loop, [tf.constant(50)])
    elements = outfeed.dequeue().numpy()
    np.testing.assert_array_equal(elements, np.arange(len(elements)))


def test_data_that_does_not_come_holds_up_no_single_step(strategy: Strategy, released: threading.Event) -> None:  # noqa: F811
    source = Source(2, lambda: released.wait(60), presses=False)
    infeed = ipu.ipu_infeed_queue.IPUIterator(source.dataset)
    step = tf.function(lambda: next(infeed) + 1.0, autograph=False)
    assert [float(strategy.run(step)) for _ in range(2)] == [1.0, 2.0]
    press_when_it_waits()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        strategy.run(step)
    assert time.monotonic() - began < 15
    released.set()
    assert float(strategy.run(step)) == 3.0


def test_data_that_does_not_come_holds_up_no_session(strategy: Strategy, released: threading.Event) -> None:  # noqa: F811
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        source = Source(20, lambda: released.wait(60))
        infeed, outfeed = Infeed(source.dataset), Outfeed()
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(16, outfeed.enqueue, [], infeed))
        elements = outfeed.dequeue()
        session.run(infeed.initializer)
        session.run(run)
        with pytest.raises(KeyboardInterrupt):
            session.run(run)
        assert time.monotonic() - source.pressed_at < 15
        released.set()
        session.run(run)
        found = session.run(elements)
    np.testing.assert_array_equal(found, np.arange(len(found)))
