"""`Claim`: what one execution does with variables."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax


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
