"""`SaveInterval`: how often a run is saved, by time or by steps."""

from __future__ import annotations

import re
import time

_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?) (second|minute|hour)s?")
_WANTED = "`every` must be a number of steps, at least 1, or a time such as '5 minutes', '30 seconds' or '1 hour'."


class SaveInterval:
    """Says when a checkpoint is due: so many steps, or so much time, after the last one.

    Args:
        every: a number of steps, or a text such as "5 minutes".

    Raises:
        TypeError, ValueError: for anything else.

    >>> interval = SaveInterval(3)
    >>> [interval.due(steps=2), interval.due(steps=2)]
    [False, True]
    """

    def __init__(self, every: int | str) -> None:
        if isinstance(every, bool) or not isinstance(every, int | str):
            raise TypeError(f"{_WANTED} Received: {every!r}, of type {type(every).__name__}.")
        self._most_steps = self._seconds = float("inf")
        if isinstance(every, int):
            self._most_steps = every
        elif match := _TIME.fullmatch(every.strip()):
            self._seconds = float(match[1]) * _SECONDS[match[2]]
        else:
            raise ValueError(f"{_WANTED} Received: {every!r}.")
        if min(self._most_steps, self._seconds) <= 0:
            raise ValueError(f"{_WANTED} Received: {every!r}.")
        self.restart()

    def restart(self) -> None:
        """Begins anew: a checkpoint was made just now."""
        self._steps, self._since = 0, time.monotonic()

    def due(self, steps: int) -> bool:
        """Counts steps; returns whether a checkpoint is due."""
        self._steps += steps
        return self._steps >= self._most_steps or time.monotonic() - self._since >= self._seconds
