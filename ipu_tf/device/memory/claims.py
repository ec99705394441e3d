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

import threading
import time
from collections.abc import Callable, Sequence

import jax

from ipu_tf.device.errors import DeviceError
from ipu_tf.device.memory.claim import Claim

PATIENCE = 10.0
"""Seconds that a program waits for one that keeps its variables and is waiting for data."""
_POLL = 0.1
"""Seconds after which a waiting program looks again for Ctrl-C, and for what the others wait for."""


class VariablesInUseError(DeviceError):
    """Raised if a program waits for variables that another program keeps while it waits for data or for the host.

    Attributes:
        variables: names of the variables.
        seconds: how long.
    """

    def __init__(self, variables: Sequence[str], seconds: float) -> None:
        self.variables = tuple(variables)
        self.seconds = seconds
        some = ", ".join(f"'{name}'" for name in self.variables[:3]) + (", ..." if len(self.variables) > 3 else "")
        super().__init__(
            f"A program cannot use {some}: a program of another thread changes these variables, and has waited "
            f"{seconds:.0f} seconds for data or for a function on the host, perhaps for this very one. Run one after "
            "the other: not within the dataset or the callback of a program that changes the same variables."
        )


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
        """Ends a claim, which holds no buffers from then on."""
        with self._changed:
            claim.borrowed, claim.records, claim.publish = {}, {}, None
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
