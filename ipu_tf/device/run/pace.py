"""How many iterations of a loop the device is given at a time: as many as it runs in a quarter of a second.

Between two chunks the host sees Ctrl-C, failures of feeds and exceptions.
"""

from __future__ import annotations

SECONDS = 0.25
"""About how long a chunk lasts at most, unless one iteration lasts longer."""
_GROWTH = 8
"""How many times as many iterations a chunk may have as the one before it."""


class Pace:
    """What is known of a loop's speed. It is kept from execution to execution, so only the first one starts slowly.

    Attributes:
        most: how many iterations the next chunk should have at most.
    """

    def __init__(self) -> None:
        self.most = 1
        self._compiled = False

    def ran(self, iterations: int, seconds: float) -> None:
        """Notes how long a chunk took; the first one's time is that of its compilation, and tells nothing."""
        if not self._compiled:
            self._compiled = iterations > 0
            return
        if iterations:
            fitting = int(SECONDS * iterations / max(seconds, 1e-9))
            self.most = max(1, min(fitting, _GROWTH * max(iterations, self.most)))
