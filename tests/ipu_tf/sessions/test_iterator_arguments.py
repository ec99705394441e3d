"""Iterators as arguments of `strategy.run`: one program for all that are alike, and none keeps a dropped one's data."""

from __future__ import annotations

import concurrent.futures
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.feeds import queues
from ipu_tf.ipu_iterator import fed_by, feed_of
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

Strategy = ipu.ipu_strategy.IPUStrategyV1


def floats(count: int, first: int = 0) -> tf.data.Dataset:
    return tf.data.Dataset.range(first, first + count).map(lambda i: tf.cast(i, tf.float32))


def nested(iterator: Any, steps: Any) -> tf.Tensor:
    """Takes two elements in each iteration, in a loop of its own: a running program calls the host for them."""
    total = 0.0
    for _ in tf.range(steps):
        for _ in tf.range(2):
            total = 2.0 * total + next(iterator)
    return total


@pytest.mark.parametrize("own", [False, True], ids=["of TensorFlow", "IPUIterator"])
@pytest.mark.parametrize("body", [lambda iterator, steps: next(iterator) * 2.0, nested], ids=["one", "nested"])
@pytest.mark.parametrize("count", [1, 2])
def test_one_program_for_every_new_iterator(own: bool, body: Any, count: int) -> None:
    make = ipu.ipu_infeed_queue.IPUIterator if own else iter
    function, steps = tf.function(body), tf.constant(3)
    wanted = tf.function(body)
    with ipus(count) as several, device_work() as work:
        for epoch in range(3):
            # Each of several replicas takes every second element.
            stock = wanted(iter(floats(40, epoch).shard(count, 0)), steps)
            np.testing.assert_allclose(several.run(function, [make(floats(40, epoch)), steps]), stock)
    assert (work.counts.programs + work.counts.loads, work.counts.executions) == (1, 3)


def test_iterators_of_other_elements_have_a_program_of_their_own(strategy: Strategy) -> None:  # noqa: F811
    function = tf.function(lambda iterator: tf.reduce_sum(next(iterator)))
    for size in (2, 3, 2):
        assert float(strategy.run(function, [iter(floats(12).batch(size, drop_remainder=True))])) == sum(range(size))
    assert int(strategy.run(function, [iter(floats(4).map(lambda x: tf.cast(x, tf.int32)))])) == 0


def test_several_iterators_in_any_order(strategy: Strategy) -> None:  # noqa: F811
    function = tf.function(lambda one, other: tf.stack([next(one), next(other), next(one)]))
    host = tf.function(lambda one, other: tf.stack([next(one), next(other), next(one)]))
    found: list[tf.Tensor] = []
    wanted: list[tf.Tensor] = []
    for run, results in ((lambda *args: strategy.run(function, args), found), (host, wanted)):
        first, second = iter(floats(20)), iter(floats(20, 100))
        results += [run(first, second), run(second, first), run(first, first), run(second, second)]
    np.testing.assert_array_equal(np.sort(found), np.sort(wanted))
    np.testing.assert_array_equal(np.sort(found[:2]), [[0, 1, 100], [2, 101, 102]])


def test_an_iterator_given_and_closed_over_keeps_its_order(strategy: Strategy) -> None:  # noqa: F811
    def program(own: Any, given: Any, steps: tf.Tensor) -> tf.Tensor:
        total = 0.0
        for _ in tf.range(steps):
            total = total * 3.0 + next(own)
            total = total * 3.0 + next(given)
        return total

    def results(run: Any) -> list[float]:
        own, other, steps = iter(floats(40)), iter(floats(40, 100)), tf.constant(3)
        function = tf.function(lambda given, steps: program(own, given, steps))
        return [float(run(function, [given, steps])) for given in (own, other, own, other)]

    assert results(strategy.run) == results(lambda function, args: function.python_function(*args))


def test_data_go_with_the_last_reference_to_an_iterator(strategy: Strategy) -> None:  # noqa: F811
    step = tf.function(lambda iterator: next(iterator))
    iterator = iter(floats(8))
    assert float(strategy.run(step, [iterator])) == 0.0
    feed = queues.infeed(feed_of(fed_by(iterator, 0)))
    seen, data = weakref.ref(iterator), weakref.ref(feed)
    del iterator, feed
    gc.collect()
    assert seen() is None and data() is None


def test_a_function_keeps_the_iterators_that_it_was_traced_with(strategy: Strategy) -> None:  # noqa: F811
    for on_device in (True, False):
        holder = [iter(floats(8))]
        step = tf.function(lambda: next(holder[0]))  # noqa: B023
        outer = tf.function(lambda: strategy.run(step) + 0.0) if on_device else step  # noqa: B023
        run = (lambda: strategy.run(step)) if on_device else step  # noqa: B023
        found = [float(run()), float(outer())]
        holder[0] = iter(floats(8, 100))
        gc.collect()
        found += [float(run()), float(outer())]
        assert found == [0.0, 1.0, 2.0, 3.0]


def test_threads_with_iterators_of_their_own(strategy: Strategy) -> None:  # noqa: F811
    function = tf.function(lambda iterator, steps: summed_floats(iterator, steps))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(strategy.run, function, [iter(floats(50, first)), tf.constant(50)]) for first in range(8)]
        assert [float(job.result()) for job in jobs] == [sum(range(first, first + 50)) for first in range(8)]


def summed_floats(iterator: Any, steps: Any) -> tf.Tensor:
    total = 0.0
    for _ in tf.range(steps):
        total += next(iterator)
    return total
