"""Programs of several threads take turns with the variables that they change."""

from __future__ import annotations

import threading
from collections.abc import Callable

import jax.numpy as jnp
import pytest

from ipu_tf.device.memory import claims as claims_module
from ipu_tf.device.memory.claim import Claim
from ipu_tf.device.memory.claims import Claims, VariablesInUseError

V, W = 1, 2
"""Keys of two variables."""


def never() -> None:
    """No wait is interrupted."""


def claim(reads: tuple[int, ...] = (), writes: tuple[int, ...] = (), **settings: object) -> Claim:
    """A claim of variables by their keys."""
    return Claim(frozenset(reads), frozenset(writes), **settings)  # type: ignore[arg-type]


def took(claims: Claims, new: Claim, taken: threading.Event) -> None:
    """Takes a claim, and says so."""
    claims.take(new, never)
    taken.set()


def waits(claims: Claims, new: Claim, until: Callable[[], None]) -> bool:
    """Takes a claim in another thread; returns whether it waited until `until` was called."""
    taken = threading.Event()
    thread = threading.Thread(target=took, args=(claims, new, taken), daemon=True)
    thread.start()
    waited = not taken.wait(0.3)
    until()
    assert taken.wait(30)
    return waited


@pytest.mark.parametrize(
    ("first", "second", "waited"),
    [
        (claim(writes=(V,)), claim(writes=(V,)), True),
        (claim(writes=(V,)), claim(writes=(W,)), False),
        (claim(reads=(V,)), claim(reads=(V,)), False),
        (claim(reads=(V,)), claim(writes=(V,)), False),
        (claim(writes=(V,)), claim(reads=(V,)), False),
        (claim(writes=(V,), exposed=True), claim(reads=(V,)), True),
        (claim(writes=(V,), exposed=True), claim(reads=(W,)), False),
        (claim(writes=(V,), exposed=True, donates=False), claim(reads=(V,)), False),
    ],
)
def test_only_programs_that_change_a_variable_are_waited_for(first: Claim, second: Claim, waited: bool) -> None:
    """The host has the value for a program that reads, unless the device's was newer when the other began."""
    claims = Claims(threading.RLock())
    claims.take(first, never)
    assert waits(claims, second, lambda: claims.release(first)) is waited


def test_a_parked_execution_gives_its_variables_away_and_waits_to_have_them_again() -> None:
    claims, said = Claims(threading.RLock()), list[str]()
    first, second = claim(writes=(V,)), claim(writes=(V,))
    claims.take(first, never)
    first.publish = lambda: said.append("published")
    claims.park(first)
    assert not waits(claims, second, never) and said == ["published"]
    resumed = threading.Event()
    changed: list[bool] = []

    def resume() -> None:
        changed.append(claims.resume(first, never))
        resumed.set()

    thread = threading.Thread(target=resume)
    thread.start()
    assert not resumed.wait(0.3)
    claims.release(second)
    assert resumed.wait(30) and changed == [True]
    thread.join()
    claims.park(first)
    assert not claims.resume(first, never), "nobody came"


def test_who_waits_gets_the_variables_before_the_next_chunk() -> None:
    """Also if the next chunk's data is there already."""
    claims = Claims(threading.RLock())
    first, second = claim(writes=(V,), exposed=True), claim(reads=(V,))
    claims.take(first, never)
    first.publish = never
    taken = threading.Event()
    thread = threading.Thread(target=took, args=(claims, second, taken))
    thread.start()
    assert not taken.wait(0.3)
    claims.park(first)
    assert claims.resume(first, never)
    assert taken.is_set()
    thread.join()


def test_a_wait_for_a_program_that_waits_itself_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "PATIENCE", 0.2)
    claims = Claims(threading.RLock())
    first = claim(writes=(V,))
    claims.take(first, never)
    claims.park(first)
    with pytest.raises(VariablesInUseError, match="cannot use 'dense/kernel'"):
        claims.take(claim(writes=(V,), names=lambda key: {V: "dense/kernel"}[key]), never)
    claims.release(first)
    calling = claim(writes=(V,), calls_host=True)
    claims.take(calling, never)
    with pytest.raises(VariablesInUseError):
        claims.take(claim(writes=(V,)), never)


def test_claims_of_threads_that_died_are_dropped() -> None:
    claims = Claims(threading.RLock())
    thread = threading.Thread(target=lambda: claims.take(claim(writes=(V,)), never))
    thread.start()
    thread.join()
    claims.take(claim(writes=(V,)), never)


def test_ctrl_c_ends_a_wait() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    claims = Claims(threading.RLock())
    first = claim(writes=(V,))
    claims.take(first, never)
    with pytest.raises(KeyboardInterrupt):
        claims.take(claim(writes=(V,)), interrupted)
    claims.release(first)
    claims.take(claim(writes=(V,)), never)


def test_buffers_that_are_read_are_known() -> None:
    claims, buffer = Claims(threading.RLock()), jnp.ones(2)
    reader, writer = claim(reads=(V,)), claim(writes=(V,))
    claims.take(reader, never)
    claims.take(writer, never)
    reader.borrow({V: buffer})
    writer.borrow({V: buffer})
    assert claims.borrowed(V, buffer, writer)
    assert not claims.borrowed(V, buffer, reader), "its own are donated"
    assert not claims.borrowed(V, jnp.ones(2), writer)
    assert claims.hidden(V, reader) and not claims.hidden(V, writer)
    claims.release(reader)
    assert not reader.borrowed, "memory goes with the execution"
