"""`TracedLoops`: the loops that a function of a model has traced, one for each shape and setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipu_tf._loops.batch_feed import BatchFeed
from ipu_tf._loops.step_loop import StepLoop
from ipu_tf._state.trace_lock import TRACE_LOCK


class TracedLoops:
    """Base of the functions that run a model in loops on the device."""

    def __init__(self) -> None:
        self._loops: dict[Any, StepLoop] = {}

    @property
    def loops(self) -> tuple[StepLoop, ...]:
        """The loops that were traced so far."""
        return tuple(self._loops.values())

    def _traced(self, key: Any, feed: BatchFeed, trace: Callable[[], StepLoop], **settings: object) -> StepLoop:
        """Returns the loop of a key, traced on first use; it then knows why it was, if others were before.

        Args:
            key: of the loop.
            feed: of its batches.
            trace: called for the loop.
            settings: what else it depends on, by names that a user knows.
        """
        if key not in self._loops:
            with TRACE_LOCK:
                if key not in self._loops:  # another thread may have traced it meanwhile
                    loop = trace()
                    loop.follow(self.loops, feed, **settings)
                    self._loops[key] = loop
        return self._loops[key]
