"""Loops without feeds run in chunks, so that the host can end them."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu_tf import ipu_compiler, loops, scopes
from ipu_tf.device.run import pace
from ipu_tf.device.run.interruptible_function import InterruptibleFunction
from ipu_tf.device.run.loop_run import LoopRun
from ipu_tf.device.run.pace import Pace
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.lowering.programs import build
from ipu_tf.ops.cross_replica_ops import cross_replica_sum
from ipu_tf.ops.replication_ops import replication_index
from tests.helpers.device_counts import device_work
from tests.helpers.sigint import press_ctrl_c, sigint_interrupts  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

SECONDS = 120
"""Limit of each wait: a test that comes to it fails."""
CHUNKS_AFTER = 2
"""Chunks that may still end after Ctrl-C: the one that runs, and one that starts before Python sees the signal."""


pytestmark = pytest.mark.usefixtures("sigint_interrupts")


def interrupted(run: Callable[[], Any], chunks: list[tuple[int, float]], after: int) -> int:
    """Chunks that end after Ctrl-C, which is pressed once more than `after` have ended."""
    ended: list[int] = []

    def press() -> None:
        limit = time.monotonic() + SECONDS
        while len(chunks) <= after and time.monotonic() < limit:
            time.sleep(0.01)
        press_ctrl_c()
        ended.append(len(chunks))

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run()
    thread.join(SECONDS)
    assert ended[0] > after
    return len(chunks) - ended[0]


@pytest.fixture(autouse=True)
def limited(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Ends the process with a trace where a loop goes on for ever, which no Python can leave."""
    with capfd.disabled():
        standard_error = os.dup(2)
    faulthandler.dump_traceback_later(3 * SECONDS, exit=True, file=standard_error)
    yield
    faulthandler.cancel_dump_traceback_later()
    os.close(standard_error)


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """The iterations and seconds of each chunk that runs."""
    ran: list[tuple[int, float]] = []
    stock = Pace.ran

    def note(self: Pace, iterations: int, seconds: float) -> None:
        ran.append((iterations, seconds))
        stock(self, iterations, seconds)

    monkeypatch.setattr(Pace, "ran", note)
    return ran


def test_an_endless_loop_is_interrupted_and_keeps_complete_iterations(chunks: list[tuple[int, float]]) -> None:
    total, count = tf.Variable(0.0), tf.Variable(0)

    @tf.function
    def endless(x: Any) -> Any:
        while tf.reduce_sum(x) < 1e30:
            count.assign_add(1)
            total.assign_add(2.0)
            x = x * 1.0
        return x

    with ipus(1) as strategy:
        run = lambda: strategy.run(endless, [tf.ones((16,))])  # noqa: E731
        assert interrupted(run, chunks, after=3) <= CHUNKS_AFTER
        assert int(count) == sum(iterations for iterations, _ in chunks) > 3
        # float32 counts by twos up to 2**25, where the next number is 4 away.
        assert float(total) == min(2.0 * int(count), 2.0**25)
        so_far = len(chunks)
        assert interrupted(run, chunks, after=so_far) <= CHUNKS_AFTER
        doubled = tf.function(lambda x: 2 * x)
        np.testing.assert_array_equal(strategy.run(doubled, [tf.ones((2,))]), [2.0, 2.0])


def test_a_streamed_loop_of_a_strategy_keeps_complete_iterations(chunks: list[tuple[int, float]]) -> None:
    total = tf.Variable(0.0)

    @tf.function
    def endless(iterator: Any) -> None:
        while total < 1e30:
            total.assign_add(next(iterator))

    with ipus(1) as strategy:
        with strategy.scope():
            iterator = iter(tf.data.Dataset.from_tensors(1.0).repeat())
        assert interrupted(lambda: strategy.run(endless, [iterator]), chunks, after=3) <= CHUNKS_AFTER
        assert float(total) == sum(iterations for iterations, _ in chunks) > 3


def replicated_loop(iterations: int) -> tuple[Any, tf.Variable]:
    """A function of two replicas that communicate in a loop, and the variable that counts its iterations."""
    total = tf.Variable(0)

    @tf.function
    def program(x: Any) -> Any:
        def body(x: Any) -> Any:
            total.assign_add(1)
            mine = tf.sin(x) + 0.001 * tf.cast(replication_index(), tf.float32)
            return cross_replica_sum(mine) / 2 + 0.001 * tf.random.stateless_normal((4,), [1, 2])

        return loops.repeat(iterations, body, [x])

    return program, total


def test_a_counted_loop_of_replicas_is_interrupted(chunks: list[tuple[int, float]]) -> None:
    program, total = replicated_loop(2**31 - 1)
    with ipus(2) as strategy:
        assert interrupted(lambda: strategy.run(program, [tf.ones((4,))]), chunks, after=3) <= CHUNKS_AFTER
        assert int(total) == sum(iterations for iterations, _ in chunks) > 3
        doubled = tf.function(lambda x: 2 * x)
        np.testing.assert_array_equal(strategy.run(doubled, [tf.ones((2,))])[0], 2.0)


def test_chunks_of_replicas_change_no_bit(monkeypatch: pytest.MonkeyPatch, chunks: list[tuple[int, float]]) -> None:
    results = []
    for seconds in (0.0005, 1000.0):
        monkeypatch.setattr(pace, "SECONDS", seconds)
        program, total = replicated_loop(600_000)
        with ipus(2) as strategy:
            results.append([np.asarray(strategy.run(program, [tf.ones((4,))])), total.numpy()])
    assert len(chunks) > 3
    monkeypatch.setattr(build, "_in_chunks", lambda *arguments: False)
    program, total = replicated_loop(600_000)
    with ipus(2) as strategy:
        whole = np.asarray(strategy.run(program, [tf.ones((4,))]))
    for x, counted in results:
        np.testing.assert_array_equal(x, whole)
        assert counted == total.numpy() == 600_000


def uneven_loop(factor: float) -> tuple[Any, tf.Variable]:
    """A function of two replicas whose loops end at other times, and the variable that counts their iterations."""
    total = tf.Variable(tf.zeros((3,)))

    @tf.function
    def program(limit: Any) -> Any:
        steps, x = 0, tf.cast(replication_index(), tf.float32)
        while tf.cast(steps, tf.float32) < limit * tf.cast(1 + replication_index(), tf.float32):
            steps += 1
            total.assign_add(tf.ones((3,)))
            x = factor * tf.sin(x) + 0.1 * tf.reduce_sum(tf.random.normal((4,)))
        own = tf.one_hot(replication_index(), 2)
        return cross_replica_sum(own * x), cross_replica_sum(own * tf.cast(steps, tf.float32))

    return program, total


def test_an_endless_loop_of_replicas_is_interrupted(chunks: list[tuple[int, float]]) -> None:
    program, total = uneven_loop(1.0)
    with ipus(2) as strategy:
        run = lambda: strategy.run(program, [tf.constant(float("inf"))])  # noqa: E731
        assert interrupted(run, chunks, after=3) <= CHUNKS_AFTER
        assert set(total.numpy()) == {sum(iterations for iterations, _ in chunks)}
        assert len(chunks) > 3
        _, steps = strategy.run(program, [tf.constant(3.0)])
        np.testing.assert_array_equal(steps, [3, 6])


@pytest.mark.parametrize("limit", [3.0, 1000.0])
def test_chunks_of_replicas_that_end_at_other_times_change_no_bit(
    limit: float, monkeypatch: pytest.MonkeyPatch, chunks: list[tuple[int, float]]
) -> None:
    results = []
    for in_chunks in (True, False):
        if not in_chunks:
            monkeypatch.setattr(build, "_in_chunks", lambda *arguments: False)
        monkeypatch.setattr(pace, "SECONDS", 0.0005)
        program, total = uneven_loop(0.9)
        with ipus(2) as strategy:
            tf.random.set_seed(3)
            results.append([*map(np.asarray, strategy.run(program, [tf.constant(limit)])), total.numpy()])
    assert len(chunks) > 1
    np.testing.assert_array_equal(results[0][1], [limit, 2 * limit])
    for ours, whole in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, whole)


@pytest.mark.parametrize("limit", [3, 1000, 100_000])
def test_chunks_change_no_bit(limit: int, monkeypatch: pytest.MonkeyPatch, chunks: list[tuple[int, float]]) -> None:
    noise = tf.Variable(tf.random.stateless_normal((4, 4), [1, 2]))

    @tf.function
    def iterated(limit: Any) -> Any:
        x, steps = tf.identity(noise), 0
        while steps < limit:
            x = tf.tanh(x @ x + tf.random.stateless_normal((4, 4), [3, 4]))
            steps += 1
        return x, steps

    results = []
    for seconds in (0.25, 0.0005, 1000.0):
        monkeypatch.setattr(pace, "SECONDS", seconds)
        with ipus(1) as strategy, device_work() as device:
            results.append(strategy.run(tf.function(iterated.python_function), [tf.constant(limit)]))
        assert device.counts.steps == 1  # an execution, not its iterations
    assert len(chunks) > 3
    stock = tf.function(iterated.python_function)(tf.constant(limit))
    for x, steps in results:
        np.testing.assert_array_equal(x, results[0][0])
        np.testing.assert_allclose(x, stock[0], rtol=1e-4, atol=1e-5)
        assert int(steps) == limit


def test_the_second_run_needs_no_small_chunks(chunks: list[tuple[int, float]]) -> None:
    @tf.function
    def counted_loop(limit: Any) -> Any:
        total = 0
        while total < limit:
            total += 1
        return total

    with ipus(1) as strategy:
        assert int(strategy.run(counted_loop, [tf.constant(10_000)])) == 10_000
        first = len(chunks)
        assert first > 2
        assert int(strategy.run(counted_loop, [tf.constant(10_000)])) == 10_000
    assert len(chunks) - first == 1


def test_a_short_loop_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopRun, "__init__", None)

    @tf.function
    def short() -> Any:
        x = tf.ones((4,))
        for _ in tf.range(20):
            x = tf.sin(x)
        return x

    with ipus(1) as strategy:
        strategy.run(short)


def endless_program(infeed: Any = None) -> Any:
    """The results of a loop on the device that never ends, in a graph of TensorFlow 1."""

    def fed() -> Any:
        return loops.repeat(2**31 - 1, lambda total, x: total + x, [0.0], infeed)

    def feedless() -> Any:
        return tf.while_loop(lambda x: tf.reduce_sum(x) < 1e30, lambda x: x * 1.0, [tf.ones((16,))])

    with scopes.ipu_scope("/device:IPU:0"):
        return ipu_compiler.compile(feedless if infeed is None else fed)


@pytest.mark.parametrize("with_feed", [False, True])
def test_a_session_is_interrupted_and_goes_on(chunks: list[tuple[int, float]], with_feed: bool) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, ipus(1):
        infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(1.0).repeat()) if with_feed else None
        endless = endless_program(infeed)
        with scopes.ipu_scope("/device:IPU:0"):
            doubled = ipu_compiler.compile(lambda: 2.0 * tf.ones((2,)))
        if infeed is not None:
            session.run(infeed.initializer)
        for _ in range(2):
            assert interrupted(lambda: session.run(endless), chunks, after=len(chunks) + 3) <= CHUNKS_AFTER
            np.testing.assert_array_equal(session.run(doubled), [[2.0, 2.0]])
        assert signal.set_wakeup_fd(-1) == -1


def test_a_function_of_the_host_with_a_program_is_interrupted(chunks: list[tuple[int, float]]) -> None:
    function = tf.function(lambda: endless_program())
    with ipus(1):
        for _ in range(2):
            assert interrupted(function, chunks, after=len(chunks) + 3) <= CHUNKS_AFTER


def test_a_session_is_interrupted_while_xla_compiles(
    monkeypatch: pytest.MonkeyPatch, chunks: list[tuple[int, float]]
) -> None:
    started, stock = threading.Event(), InterruptibleFunction._compile_it

    def slowly(self: InterruptibleFunction, lowered: Any) -> None:
        started.set()
        time.sleep(2)
        stock(self, lowered)

    monkeypatch.setattr(InterruptibleFunction, "_compile_it", slowly)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, ipus(1):
        with scopes.ipu_scope("/device:IPU:0"):
            doubled = ipu_compiler.compile(lambda: 2.0 * tf.ones((2,)))

        def press() -> None:
            started.wait(SECONDS)
            press_ctrl_c()

        threading.Thread(target=press).start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            session.run(doubled)
        np.testing.assert_array_equal(session.run(doubled), [[2.0, 2.0]])
        assert time.monotonic() > begun + 2  # the first call did not wait for the compilation, the second one did
