"""Feeds that one side stops using, and feeds of any length, end the programs that use them."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus
from tests.helpers.starved import STARVED, Source, stuck  # noqa: F401 - a fixture

Infeed, Outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue, ipu.ipu_outfeed_queue.IPUOutfeedQueue


def counting(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).map(lambda i: tf.cast(i, tf.float32))


def loop_of(steps: int, infeed: Any, outfeed: Any) -> Any:
    return tf.function(lambda: ipu.loops.repeat(steps, outfeed.enqueue, [], infeed) and None, autograph=False)


class Running:
    """A program in a thread of its own, with what it raised."""

    def __init__(self, strategy: Any, program: Any) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(strategy, program))
        self._thread.start()

    def _run(self, strategy: Any, program: Any) -> None:
        try:
            strategy.run(program)
        except tf.errors.OpError as error:
            self.error = error

    def ended(self) -> BaseException | None:
        """Waits for its end; returns the error that it raised."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.error


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_outfeed_that_nobody_reads_stops_no_program(replicas: int) -> None:
    steps, outfeed = 3000, Outfeed(buffer_depth=1)
    with ipus(replicas) as strategy, device_work() as work:
        loop = loop_of(steps, Infeed(counting(10**6)), outfeed)
        for _ in range(2):
            strategy.run(loop)
        elements = outfeed.dequeue().numpy()
    assert work.counts.steps == 2 * steps
    np.testing.assert_array_equal(elements.ravel(), np.arange(2 * steps * replicas))


def test_an_outfeed_that_was_deleted_is_named() -> None:
    outfeed = Outfeed()
    with ipus(1) as strategy:
        loop = loop_of(2, Infeed(counting(9)), outfeed)
        strategy.run(loop)
        assert outfeed.deleter is None
        with pytest.raises((tf.errors.OpError, RuntimeError), match=r"outfeed '?outfeed_\d+"):
            strategy.run(loop)
        with pytest.raises(tf.errors.NotFoundError, match=r"Outfeed with id='outfeed_\d+' does not exist"):
            _ = outfeed.deleter


def test_an_outfeed_read_while_the_program_fails_gives_all_elements_and_ends() -> None:
    outfeed, elements = Outfeed(), list[float]()
    with ipus(1) as strategy:
        infeed = Infeed(counting(500))
        running = Running(strategy, loop_of(1000, infeed, outfeed))
        deadline = time.monotonic() + 60
        while len(elements) < 500:
            assert time.monotonic() < deadline
            elements += [float(element) for element in outfeed] if outfeed.enqueued else []
            time.sleep(0.001)
        error = running.ended()
    assert isinstance(error, tf.errors.OutOfRangeError)
    assert "ran out of data after 500 elements" in str(error)
    assert elements == list(range(500))


def test_who_waits_for_a_starved_program_waits_no_longer_than_it(stuck: Source) -> None:  # noqa: F811
    outfeed = Outfeed()
    with ipus(1) as strategy:
        infeed = Infeed(stuck(3))
        running = Running(strategy, loop_of(8, infeed, outfeed))
        time.sleep(0.2)
        began = time.monotonic()
        outfeed.dequeue(wait_for_completion=True)
        assert time.monotonic() - began < 30
        error = running.ended()
    assert isinstance(error, tf.errors.DeadlineExceededError)
    with pytest.raises(tf.errors.DeadlineExceededError, match=STARVED.format(3)):
        raise error


def test_all_who_share_a_starved_infeed_end(stuck: Source) -> None:  # noqa: F811
    with ipus(1) as strategy:
        infeed = Infeed(stuck(2))
        running = [Running(strategy, loop_of(8, infeed, Outfeed())) for _ in range(2)]
        errors = [one.ended() for one in running]
    assert [type(error) for error in errors] == [tf.errors.DeadlineExceededError] * 2


def test_replicas_starve_as_one_does(stuck: Source) -> None:  # noqa: F811
    with (
        ipus(2) as strategy,
        pytest.raises(tf.errors.DeadlineExceededError, match=STARVED.format(5)),
    ):
        strategy.run(loop_of(8, Infeed(stuck(5)), Outfeed()))


def test_a_session_starves_with_the_same_words(stuck: Source) -> None:  # noqa: F811
    with ipus(1), tf.Graph().as_default(), tf.compat.v1.Session() as session:
        infeed, outfeed = Infeed(stuck(4)), Outfeed()
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(9, outfeed.enqueue, [], infeed))
        session.run(infeed.initializer)
        with pytest.raises(tf.errors.DeadlineExceededError, match=STARVED.format(4)):
            session.run(run)


@given(
    st.integers(0, 9),
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
    st.sampled_from([1, 2]),
    st.sampled_from(list(ipu.ipu_outfeed_queue.IPUOutfeedMode)),
)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_data_of_any_length_ends_in_elements_or_in_a_named_error(
    elements: int, runs: list[int], replicas: int, mode: Any
) -> None:
    outfeed, given_out = Outfeed(mode), 0
    with ipus(replicas) as strategy:
        infeed = Infeed(counting(elements))
        loop = tf.function(lambda n: ipu.loops.repeat(n, outfeed.enqueue, [], infeed) and None, autograph=False)
        for steps in runs:
            try:
                strategy.run(loop, [tf.constant(steps)])
            except tf.errors.OutOfRangeError as error:
                assert f"ran out of data after {elements} elements" in str(error)
                assert (given_out + steps) * replicas > elements
                given_out = elements // replicas
                break
            given_out += steps
        last = mode is ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST
        if last and given_out == 0:
            with pytest.raises(tf.errors.FailedPreconditionError, match="before it was executed"):
                outfeed.dequeue()
            return
        dequeued = outfeed.dequeue().numpy()
    every = np.arange(given_out * replicas, dtype=np.float32)
    np.testing.assert_array_equal(dequeued.ravel(), every[-replicas:] if last else every)


def test_an_infeed_goes_with_its_queue_and_the_functions_that_dequeue() -> None:
    ended = threading.Event()

    def numbers() -> Iterator[float]:
        try:
            yield from map(float, range(1000))
        finally:
            ended.set()

    elements = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.float32))
    queues, outfeed = [Infeed(elements)], Outfeed()
    with ipus(1) as strategy:
        loops = [loop_of(2, queues.pop(), outfeed)]
        strategy.run(loops[0])
        gc.collect()
        strategy.run(loops[0])  # the queue is the function's alone
        np.testing.assert_array_equal(outfeed.dequeue(), [0, 1, 2, 3])
        loops.clear()
        gc.collect()
        assert ended.wait(10)


def test_a_function_goes_on_with_the_queue_that_it_was_traced_with() -> None:
    names, outfeed = {"queue": Infeed(counting(9))}, Outfeed()
    with ipus(1) as strategy:
        loop = tf.function(lambda: ipu.loops.repeat(2, outfeed.enqueue, [], names["queue"]) and None, autograph=False)
        strategy.run(loop)
        names["queue"] = Infeed(counting(3))
        gc.collect()
        strategy.run(loop)
    np.testing.assert_array_equal(outfeed.dequeue(), [0, 1, 2, 3])
