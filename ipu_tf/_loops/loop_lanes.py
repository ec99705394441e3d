"""`LoopLanes`: an executable and an outfeed for each concurrent run of a step loop, as one in the feed of another."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ipu_tf._loops.step_outputs import StepOutputs
from ipu_tf.device.feeds.outfeed import Outfeed
from ipu_tf.device.run.executable import Executable

if TYPE_CHECKING:
    from ipu_tf._loops.step_loop import DeviceStep

PATIENCE = 1.0
"""Seconds that a run lets another wait for its data before it takes a lane of its own."""
_POLL = 0.1


@dataclasses.dataclass(eq=False)
class LoopLane:
    """What one run at a time uses.

    Attributes:
        step: the step, with the values that the run has acquired.
        executable: the program, with its staging buffers.
        outfeed: where the outputs of the steps come out.
        outputs: those of the run.
        delivers_since: when the run began to wait for those who get its outputs, by `time.monotonic`.
        lock: held by the run.
    """

    step: DeviceStep
    executable: Executable
    outfeed: Outfeed
    outputs: StepOutputs
    delivers_since: float | None = None
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @property
    def waits(self) -> bool:
        """Whether its run has waited for its data, or for those who get its outputs: perhaps for another run."""
        since = self.delivers_since or self.step.waits_since()
        return since is not None and time.monotonic() - since >= PATIENCE


class LoopLanes:
    """Lanes of one step loop: one, and more where its runs wait for each other.

    Args:
        first: the first lane.
        another: makes one more; it compiles the program again.
    """

    def __init__(self, first: LoopLane, another: Callable[[], LoopLane]) -> None:
        self.first = first
        self._another = another
        self._lanes = [first]
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def free(self, check: Callable[[], None]) -> Iterator[LoopLane]:
        """Context manager: a lane for one run, once there is one.

        Args:
            check: called from time to time; raises what ends the wait.
        """
        lane = self._take(check)
        try:
            yield lane
        finally:
            lane.delivers_since = None
            lane.lock.release()

    def _take(self, check: Callable[[], None]) -> LoopLane:
        while True:
            for lane in tuple(self._lanes):
                if lane.lock.acquire(blocking=False):
                    return lane
            with self._lock:
                if all(lane.waits for lane in self._lanes):
                    self._lanes.append(self._another())
                    continue
            if self.first.lock.acquire(timeout=_POLL):
                return self.first
            check()
