"""`Pace`: how many iterations of a loop a chunk has, by the loop's measured speed."""

from __future__ import annotations

MOST_WITHOUT_FEEDS = 2**30
"""Iterations of a chunk of a loop that no memory has to be kept for."""

SECONDS = 0.25
"""About how long a chunk lasts at most, unless one iteration lasts longer."""
_GROWTH = 8
"""Factor by which a chunk may have more iterations than the one before it."""


class Pace:
    """Measured speed of a loop, which limits its chunks to a quarter of a second.

    Between two chunks the host handles Ctrl-C, failed feeds and exceptions. It is kept between executions, so only the
    first one starts with short chunks.

    Args:
        measured: whether it limits them; else chunks are as long as staging buffers allow.

    Attributes:
        most: how many iterations the next chunk should have at most.
    """

    def __init__(self, measured: bool = True) -> None:
        self.most = 1 if measured else MOST_WITHOUT_FEEDS
        self._compiled, self._measured = False, measured

    def ran(self, iterations: int, seconds: float) -> None:
        """Records the time of a chunk; the first one's is ignored, as it includes compilation."""
        if not self._compiled or not self._measured:
            self._compiled = iterations > 0
            return
        if iterations:
            fitting = int(SECONDS * iterations / max(seconds, 1e-9))
            self.most = max(1, min(fitting, _GROWTH * max(iterations, self.most)))
