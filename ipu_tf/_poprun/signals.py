"""`Signals`: what `poprun` is told by signals, kept until its loop asks, and which of them is a second request to end.

handler ─► waiting: SIGTERM, SIGUSR1, SIGTERM ─► loop: passed on, passed on, instances are killed
"""

from __future__ import annotations

import collections
import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that `poprun` passes on to all instances."""
REQUESTS = (signal.SIGINT, signal.SIGTERM)
"""Those of which a second one ends the instances at once."""
SAME_REQUEST = 0.5
"""Seconds within which requests are one: `timeout` sends SIGTERM to a process and to its group, which it is in."""


class Signals:
    """Signals of this process that wait to be passed on.

    A handler only notes them: instances may be about to be started, and one that is half started cannot be told.
    """

    def __init__(self) -> None:
        self._waiting: collections.deque[tuple[signal.Signals, float]] = collections.deque()
        self._requested: float | None = None

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Context manager: signals are noted; those that are ignored, as SIGHUP under `nohup`, stay so."""
        before: dict[signal.Signals, Any] = {
            number: signal.signal(number, self._note)
            for number in PASSED_ON
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append((signal.Signals(number), time.monotonic()))

    def take(self) -> Iterator[tuple[signal.Signals, bool]]:
        """Yields the signals that came, and for each whether it is a second request to end."""
        while self._waiting:
            number, at = self._waiting.popleft()
            if number not in REQUESTS:
                yield number, False
                continue
            first = self._requested is None
            self._requested = at if self._requested is None else self._requested
            if first or at - self._requested > SAME_REQUEST:
                yield number, not first
