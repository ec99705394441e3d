"""Readers that are left running: what they read stays in its infeed, and they write to no buffers any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipu_tf.device.errors import InfeedTimeout
from ipu_tf.device.feeds import reader_threads, timeout
from ipu_tf.device.feeds.execution_queues import ExecutionQueues
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.stager import Stager
from ipu_tf.device.feeds.timeout import next_element, watched
from ipu_tf.device.program.program import LoopPart, Program
from ipu_tf.device.program.replicas import Replicas
from ipu_tf.device.run.executable import Executable, ExecutionResult

SCALAR = jax.ShapeDtypeStruct((), np.dtype(np.float32))
COUNT = jax.ShapeDtypeStruct((), np.dtype(np.int32))
PATIENCE = 30.0


class Tap:
    """A source of 0., 1., ... that blocks where no more are allowed; `end` lets its readers go."""

    def __init__(self, allowed: int) -> None:
        self._changed = threading.Condition()
        self._allowed = allowed
        self.awaited = threading.Event()

    def allow(self, allowed: int) -> None:
        with self._changed:
            self._allowed = allowed
            self._changed.notify_all()

    def end(self) -> None:
        self.allow(10**9)

    def __call__(self) -> Iterator[tuple[np.ndarray, ...]]:
        for number in range(10**6):
            with self._changed:
                if number >= self._allowed:
                    self.awaited.set()
                    assert self._changed.wait_for(lambda n=number: n < self._allowed, PATIENCE)  # type: ignore[misc]
            yield (np.asarray(number, np.float32),)


@pytest.fixture
def taps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Tap]]:
    """Makes sources; programs wait a quarter of a second for them."""
    monkeypatch.setenv("IPU_TF_FEED_TIMEOUT", "0.25")
    made: list[Tap] = []

    def make(allowed: int) -> Tap:
        made.append(Tap(allowed))
        return made[-1]

    yield make
    for tap in made:
        tap.end()


def infeed_of(tap: Tap, name: str = "in") -> Infeed:
    return Infeed(name, (SCALAR,), watched(lambda: name, tap))


def summing(*names: str) -> Executable:
    """(total, steps) -> total after so many elements of the infeeds, where the later ones count ten times as much."""

    def step(carry: Any, constants: Any, hidden: Any, elements: Any) -> Any:
        total = carry[0] + sum(10.0**place * elements[name][0] for place, name in enumerate(names))
        return (total, carry[1]), hidden, {}

    loop = LoopPart(
        step=step,
        goes_on=lambda carry, constants: jnp.bool_(True),
        trip_count=lambda carry: int(carry[1]),
        carry_in=(0, 1),
        constants=(),
        carry_out=(2, None),
        infeeds=dict.fromkeys(names, (SCALAR,)),
    )
    return Executable(Program("summing", (SCALAR, COUNT), (loop,), (2,), {0: 0}))


def run(executable: Executable, steps: int, *infeeds: Infeed) -> ExecutionResult:
    """Runs the program in a thread, so that one that does not end fails the test."""
    results: list[ExecutionResult] = []
    queues = ExecutionQueues({infeed.name: infeed for infeed in infeeds})
    arguments = [jnp.float32(0), np.int32(steps)]
    thread = threading.Thread(target=lambda: results.append(executable.run(arguments, queues)), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert results, "The program does not end."
    return results[0]


def test_who_reads_again_goes_on_with_the_first_element_that_did_not_run(taps: Callable[[int], Tap]) -> None:
    tap, executable = taps(3), summing("in")
    infeed = infeed_of(tap)
    starved = run(executable, 8, infeed)
    assert isinstance(starved.error, InfeedTimeout)
    tap.allow(13)
    went_on = run(executable, 13 - starved.steps, infeed)
    assert went_on.error is None
    assert float(starved.results[0]) + float(went_on.results[0]) == sum(range(13))
    for _ in range(3):
        assert isinstance(run(executable, 8, infeed).error, InfeedTimeout)


def test_elements_of_several_infeeds_stay_together(taps: Callable[[int], Tap]) -> None:
    taps_of = {"a": taps(100), "b": taps(5)}
    infeeds = [infeed_of(tap, name) for name, tap in taps_of.items()]
    executable = summing("a", "b")
    total, steps = 0.0, 0
    for _ in range(2):
        starved = run(executable, 20, *infeeds)
        assert isinstance(starved.error, InfeedTimeout)
        total, steps = total + float(starved.results[0]), steps + starved.steps
    taps_of["b"].allow(100)
    went_on = run(executable, 20 - steps, *infeeds)
    assert went_on.error is None
    assert total + float(went_on.results[0]) == 11 * sum(range(20))


def test_a_late_element_is_the_next_one(taps: Callable[[int], Tap]) -> None:
    tap = taps(1)
    infeed = infeed_of(tap)
    assert float(next_element(infeed)[0]) == 0
    for _ in range(2):
        with pytest.raises(InfeedTimeout, match="step 1 of its data"):
            next_element(infeed)
    tap.allow(100)
    assert [float(next_element(infeed)[0]) for _ in range(3)] == [1, 2, 3]
    assert infeed.taken == 4


@pytest.mark.parametrize("ahead", [False, True])
def test_who_leaves_at_once_gives_the_buffers_to_the_next_run(taps: Callable[[int], Tap], ahead: bool) -> None:
    part = LoopPart(
        step=lambda *given: given,
        goes_on=lambda carry, constants: jnp.bool_(True),
        trip_count=None,
        carry_in=(),
        constants=(),
        carry_out=(),
        infeeds={"in": (SCALAR,)},
    )
    tap, other = taps(2), taps(100)
    left, infeed = infeed_of(tap), infeed_of(other)
    buffers = Stager.make_buffers(part, 4, Replicas())
    with pytest.raises(KeyboardInterrupt), Stager({"in": left}, 4, buffers) as stager:
        stager.stage_ahead(4)
        assert tap.awaited.wait(PATIENCE)
        if ahead:
            raise KeyboardInterrupt
        _interrupt_the_wait(stager)
    with Stager({"in": infeed}, 4, buffers) as stager:
        chunk = stager.take(4)
    tap.end()
    assert [float(left.next()[0]) for _ in range(5)] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(chunk.staged["in"].arrays[0], np.arange(4))


def _interrupt_the_wait(stager: Stager) -> None:
    """Waits for the chunk, as a program that a second Ctrl-C ends meanwhile."""

    def interrupted() -> float:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeout, "feed_timeout", interrupted)
        stager.take(4)


def test_threads_end_when_they_are_not_used(taps: Callable[[int], Tap], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_threads, "_KEPT", 0.01)
    tap = taps(0)
    with pytest.raises(InfeedTimeout):
        next_element(infeed_of(tap))
    reading = [thread for thread in threading.enumerate() if thread.name == "ipu-infeed"]
    assert reading
    tap.end()
    latest = time.monotonic() + PATIENCE
    while any(thread.is_alive() for thread in reading) and time.monotonic() < latest:
        time.sleep(0.01)
    assert not any(thread.is_alive() for thread in reading)
