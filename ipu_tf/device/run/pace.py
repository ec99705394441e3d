"""Limits the length of a loop's chunks to a quarter of a second, so that the host can end it in between.

Between two chunks the host handles Ctrl-C, failed feeds and exceptions.
"""

from __future__ import annotations

SECONDS = 0.25
"""About how long a chunk lasts at most, unless one iteration lasts longer."""
_GROWTH = 8
"""How many times as many iterations a chunk may have as the one before it."""


class Pace:
    """Measured speed of a loop. It is kept between executions, so only the first one starts with short chunks.

    Attributes:
        most: how many iterations the next chunk should have at most.
    """

    def __init__(self) -> None:
        self.most = 1
        self._compiled = False

    def ran(self, iterations: int, seconds: float) -> None:
        """Records the time of a chunk; the first one's is ignored, as it includes compilation."""
        if not self._compiled:
            self._compiled = iterations > 0
            return
        if iterations:
            fitting = int(SECONDS * iterations / max(seconds, 1e-9))
            self.most = max(1, min(fitting, _GROWTH * max(iterations, self.most)))
