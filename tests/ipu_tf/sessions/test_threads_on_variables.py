"""Threads that run programs on one variable: no update is lost, as with TensorFlow's own `assign_add`."""

from __future__ import annotations

import concurrent.futures
import random
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.memory import claims
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus


def adding(variables: list[tf.Variable], number: float, repeats: int = 1) -> Any:
    """A function that adds a number to each variable, in a loop on the device or once."""

    def step() -> None:
        for variable in variables:
            variable.assign_add(tf.fill(variable.shape, number))

    def looped() -> None:
        ipu.loops.repeat(repeats, step, [])

    return tf.function(step if repeats == 1 else looped, autograph=False)


def gated(entered: threading.Event, gate: threading.Event) -> ipu.ipu_infeed_queue.IPUInfeedQueue:
    """An infeed whose second element is there once the gate is open."""

    def element(number: np.ndarray) -> np.float32:
        if number == 1:
            entered.set()
            assert gate.wait(60)
        return np.float32(number)

    data = tf.data.Dataset.range(9).map(
        lambda i: tf.ensure_shape(tf.numpy_function(element, [i], tf.float32), ()), num_parallel_calls=1
    )
    return ipu.ipu_infeed_queue.IPUInfeedQueue(data)


@pytest.mark.parametrize("count", [1, 2])
def test_one_program_in_several_threads(count: int) -> None:
    with ipus(count) as strategy, concurrent.futures.ThreadPoolExecutor(4) as pool:
        variable = tf.Variable(0.0)
        add = adding([variable], 1.0)
        with device_work() as work:
            list(pool.map(lambda _: strategy.run(add), range(200)))
    assert float(variable) == 200.0
    assert work.counts.executions == 200


def test_several_programs_that_share_some_of_their_variables() -> None:
    """Sums of whole numbers are exact: a lost update shows, in whichever order they run."""
    rng = random.Random(5)
    with ipus(1) as strategy, concurrent.futures.ThreadPoolExecutor(6) as pool:
        variables = [tf.Variable(tf.zeros(size)) for size in (1, 70_000, 3, 20_000, 5)]
        chosen = [rng.sample(range(5), rng.randint(1, 4)) for _ in range(6)]
        repeats = [1, 1, 1, 3, 5, 8]
        programs = [adding([variables[i] for i in some], 1.0, n) for some, n in zip(chosen, repeats, strict=True)]
        total = tf.function(lambda: [tf.reduce_max(each) - tf.reduce_min(each) for each in variables])

        def work(number: int) -> list[float]:
            for _ in range(25):
                strategy.run(programs[number])
            return [float(each) for each in strategy.run(total)]

        spreads = list(pool.map(work, range(6)))
    wanted = [sum(25 * n for some, n in zip(chosen, repeats, strict=True) if place in some) for place in range(5)]
    assert [float(each[0]) for each in variables] == wanted
    assert np.abs(spreads).max() == 0.0, "a program reads a variable as it is before or after an update"


def test_a_loop_goes_on_from_what_others_wrote_while_it_waited() -> None:
    entered, gate = threading.Event(), threading.Event()
    with ipus(1) as strategy, concurrent.futures.ThreadPoolExecutor(1) as pool:
        variable, other = tf.Variable(0.0), tf.Variable(1.0)
        infeed = gated(entered, gate)
        strategy.run(adding([other], 1.0))

        def loop() -> None:
            ipu.loops.repeat(4, lambda x: variable.assign_add(1.0 + 0.0 * x).op, [], infeed)

        future = pool.submit(strategy.run, tf.function(loop, autograph=False))
        assert entered.wait(60)
        strategy.run(adding([variable, other], 10.0))
        read = strategy.run(tf.function(lambda: variable * 1.0))
        gate.set()
        future.result(60)
    assert float(read) in (10.0, 11.0), "the loop waited before or after its first step"
    assert (float(variable), float(other)) == (14.0, 12.0)


def test_a_program_that_cannot_give_its_variables_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has an assertion, so its variables keep their values until it has ended."""
    monkeypatch.setattr(claims, "PATIENCE", 0.5)
    entered, gate = threading.Event(), threading.Event()
    with ipus(1) as strategy, concurrent.futures.ThreadPoolExecutor(1) as pool:
        variable = tf.Variable(0.0, name="shared")
        infeed = gated(entered, gate)

        def step(x: tf.Tensor) -> tf.Operation:
            tf.debugging.assert_less(x, 100.0)
            return variable.assign_add(1.0 + 0.0 * x).op

        loop = tf.function(lambda: ipu.loops.repeat(4, step, [], infeed) and None, autograph=False)
        future = pool.submit(strategy.run, loop)
        assert entered.wait(60)
        with pytest.raises(tf.errors.FailedPreconditionError, match="cannot use 'shared'.*waited"):
            strategy.run(adding([variable], 10.0))
        assert float(strategy.run(tf.function(lambda: variable * 1.0))) == 0.0
        gate.set()
        future.result(60)
        assert float(variable) == 4.0
        strategy.run(adding([variable], 10.0))
    assert float(variable) == 14.0


def test_a_failed_program_drops_nothing_of_another_threads() -> None:
    entered, gate = threading.Event(), threading.Event()
    with ipus(1) as strategy, concurrent.futures.ThreadPoolExecutor(1) as pool:
        variable = tf.Variable(0.0)
        infeed = gated(entered, gate)
        future = pool.submit(
            strategy.run,
            tf.function(
                lambda: ipu.loops.repeat(4, lambda x: variable.assign_add(1.0 + 0.0 * x).op, [], infeed) and None,
                autograph=False,
            ),
        )
        assert entered.wait(60)

        def wrong() -> None:
            tf.debugging.assert_less(variable + 100.0, 1.0)

        with pytest.raises(tf.errors.InvalidArgumentError):
            strategy.run(tf.function(wrong, autograph=False))
        gate.set()
        future.result(60)
    assert float(variable) == 4.0
