"""`Claims`: which executions use which variables, so that threads which run programs on one variable take turns.

    thread 1   |claim v|  chunk  | parked: waits for data |  chunk  |release|
    thread 2        waits ─────► | claim v | run | release |
                                 new values of thread 1 so far are published, and thread 1 goes on from thread 2's

A program that changes a variable has it alone while the device computes. A loop that waits for its data is parked:
others may use its variables, as a generator does that predicts with the model that it feeds. A loop that cannot be
parked keeps them; whoever waits for it while it waits for data gets an error after `PATIENCE` seconds.

Programs that only read a variable keep nobody waiting: a buffer that they read is copied for a program that changes it.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

from ipu_tf.device.errors import VariablesInUseError

PATIENCE = 10.0
"""Seconds that a program waits for one that keeps its variables and is waiting for data."""
_POLL = 0.1
"""Seconds after which a waiting program looks again for Ctrl-C, and for what the others wait for."""


@dataclasses.dataclass(eq=False)
class Claim:
    """What one execution does with variables.

    Attributes:
        reads: keys of the variables that it only reads.
        writes: keys of those that it changes.
        donates: whether the device's buffers of those are gone while it computes.
        calls_host: whether it calls functions on the host while it computes.
        names: of variables by their keys, for errors.
        thread: that runs it.
        borrowed: buffers that it reads and that may not be donated, by the variables' keys.
        records: what is known of the variables, by their keys: one that is dropped meanwhile is stored again.
        exposed: whether it began with values, or has computed some, that the host does not have.
        parked_since: when it began to wait for data, by `time.monotonic`; None while it computes.
        waits_since: when it began to wait for its turn.
        publish: stores the new values that it has so far; None if it keeps its variables while it waits for data.
        published: whether others may have used its variables since it was parked.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    donates: bool = True
    calls_host: bool = False
    names: Callable[[int], str] = str
    thread: threading.Thread = dataclasses.field(default_factory=threading.current_thread)
    borrowed: Mapping[int, jax.Array] = dataclasses.field(default_factory=dict)
    records: dict[int, Any] = dataclasses.field(default_factory=dict)
    exposed: bool = False
    parked_since: float | None = None
    waits_since: float = 0.0
    publish: Callable[[], None] | None = None
    published: bool = False

    def borrow(self, arrays: Mapping[int, jax.Array]) -> None:
        """Notes which buffers the execution reads and does not donate, by the variables' keys."""
        kept = self.reads if self.donates else self.reads | self.writes
        self.borrowed = {key: array for key, array in arrays.items() if key in kept}

    def hides(self, key: int) -> bool:
        """Whether the device's value of a variable is not there, or half computed, while this computes."""
        return key in self.writes and self.donates and not self.published

    def keeps_waiting(self, other: Claim) -> frozenset[int]:
        """Returns the variables for which another claim has to wait until this one computes no more."""
        if self.published:
            return frozenset()
        hidden = other.reads & self.writes if self.exposed and self.donates else frozenset()
        return (other.writes & self.writes) | hidden


class Claims:
    """Claims of the executions that run now.

    Args:
        lock: guards the claims, and the variables themselves.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._changed = threading.Condition(lock)
        self._held: list[Claim] = []
        self._waiting: list[Claim] = []

    def take(self, claim: Claim, check: Callable[[], None]) -> None:
        """Waits until no other execution computes with the variables that this one changes, then holds them.

        Args:
            claim: what is claimed, all at once: nothing is held while it waits.
            check: called from time to time; raises what ends the wait.

        Raises:
            VariablesInUseError: the other execution keeps them while it waits for data, for `PATIENCE` seconds.
        """
        with self._changed:
            self._wait_for_turn(claim, check, behind=())
            self._held.append(claim)

    def release(self, claim: Claim) -> None:
        """Ends a claim."""
        with self._changed:
            if claim in self._held:
                self._held.remove(claim)
                self._changed.notify_all()

    def holds(self, claim: Claim) -> bool:
        """Whether an execution has its variables."""
        return claim in self._held

    def park(self, claim: Claim) -> None:
        """Notes that an execution waits for data, and lets those that wait for its variables have them."""
        with self._changed:
            claim.parked_since = time.monotonic()
            if self._waiting:
                if claim.publish is not None and any(claim.keeps_waiting(other) for other in self._waiting):
                    self._publish(claim)
                self._changed.notify_all()

    def resume(self, claim: Claim, check: Callable[[], None]) -> bool:
        """Waits until an execution may compute again; returns whether others may have changed its variables since."""
        with self._changed:
            if claim.published:
                self._wait_for_turn(claim, check, behind=tuple(self._waiting))
            claim.parked_since = None
            others, claim.published = claim.published, False
            return others

    def others(self, claim: Claim | None) -> bool:
        """Whether there are executions besides one's own."""
        return len(self._held) > (claim in self._held)

    def hidden(self, key: int, but: Claim | None = None) -> bool:
        """Whether an execution, other than one's own, has the value of a variable for itself."""
        return any(each.hides(key) for each in self._held if each is not but)

    def borrowed(self, key: int, buffer: jax.Array, but: Claim | None = None) -> bool:
        """Whether an execution, other than one's own, reads a buffer, which must not be donated."""
        return any(each.borrowed.get(key) is buffer for each in self._held if each is not but)

    def _wait_for_turn(self, claim: Claim, check: Callable[[], None], behind: tuple[Claim, ...]) -> None:
        self._waiting.append(claim)
        claim.waits_since = time.monotonic()
        try:
            while self._is_in_the_way(claim, behind):
                self._changed.wait(_POLL)
                check()
        finally:
            self._waiting.remove(claim)
            self._changed.notify_all()

    def _is_in_the_way(self, claim: Claim, behind: tuple[Claim, ...]) -> bool:
        """Whether a claim has to wait: for an execution, or for a claim that was there before it."""
        self._held = [each for each in self._held if each.thread.is_alive()]
        for other in self._held:
            if other is claim or not other.keeps_waiting(claim):
                continue
            if other.parked_since is not None and other.publish is not None:
                self._publish(other)
                continue
            _check_progress(claim, other)
            return True
        return any(each in self._waiting and _share(each, claim) for each in behind)

    @staticmethod
    def _publish(claim: Claim) -> None:
        assert claim.publish is not None
        claim.publish()
        claim.published = True


def _share(one: Claim, other: Claim) -> bool:
    return bool(one.writes & other.writes or one.writes & other.reads or one.reads & other.writes)


def _check_progress(claim: Claim, other: Claim) -> None:
    """Raises if a claim would wait for an execution that waits for data, or for the host: perhaps for this claim."""
    since = claim.waits_since if other.calls_host else other.parked_since
    if since is not None and time.monotonic() - since >= PATIENCE:
        variables = sorted(map(claim.names, other.keeps_waiting(claim)))
        raise VariablesInUseError(variables, time.monotonic() - since)
