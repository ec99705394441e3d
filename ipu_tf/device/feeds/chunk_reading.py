"""`ChunkReading`: reads the elements of one chunk of a loop, in a thread or at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from ipu_tf.device.errors import InfeedTimeout
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.reading import Reading
from ipu_tf.device.feeds.staging import Staged
from ipu_tf.device.feeds.timeout import ReadInterrupted, TimedRead
from ipu_tf.device.timeline import span


@dataclasses.dataclass(frozen=True)
class StagedChunk:
    """Staged elements of one chunk of a loop.

    Attributes:
        staged: the elements of each infeed.
        count: iterations that every infeed has an element for.
        error: what ended an infeed early, if one did.
        position: elements that were taken before, of infeeds of which all instances have to be at the same one.
    """

    staged: dict[str, Staged]
    count: int
    error: BaseException | None
    position: int = 0


class ChunkReading:
    """Elements of one chunk that are read into staging buffers.

    All but the reading is done by the program that waits for it. So whenever it leaves, it knows what was stored, and
    returns that to the infeeds.

    Args:
        infeeds: the loop's infeeds by name.
        buffers: the staging buffers of each, which nothing else uses until `result` or `abandon`.
        count: iterations to read for.
    """

    def __init__(self, infeeds: Mapping[str, Infeed], buffers: dict[str, tuple[np.ndarray, ...]], count: int) -> None:
        self._infeeds = infeeds
        self._count = count
        self._position = sum(infeed.taken for infeed in infeeds.values() if infeed.aligned)
        self._reading = Reading()
        self._fillings = {name: infeed.filling(buffers[name], self._reading) for name, infeed in infeeds.items()}
        self._read: TimedRead[None] | None = None

    def start(self) -> None:
        """Starts to read in a thread."""
        self._read = TimedRead(list(self._infeeds.values()), self._fill)

    def result(self, interrupted: Callable[[], bool]) -> StagedChunk:
        """Waits for the elements, or reads them here if it was not started.

        Args:
            interrupted: whether to make do with the elements that there are.

        Returns:
            The chunk. If an infeed times out, or gives nothing after an interruption, it is empty, with that error.
        """
        try:
            if self._read is None:
                self._fill()
            else:
                self._read.result(interrupted, self._stop)
        except InfeedTimeout as error:
            return self._left_with(error)
        except ReadInterrupted:
            return self._left_with(KeyboardInterrupt())
        return self._complete_steps()

    def abandon(self) -> None:
        """Returns what was read so far to the infeeds; the thread ends after the element that it waits for."""
        self._reading.abandon()
        for name, filling in self._fillings.items():
            self._infeeds[name].put_back(filling)

    def _left_with(self, error: BaseException) -> StagedChunk:
        self.abandon()
        empty = {name: Staged(filling.arrays, 0) for name, filling in self._fillings.items()}
        return StagedChunk(empty, 0, error, self._position)

    def _stop(self) -> None:
        self._reading.stopped = True

    def _fill(self) -> None:
        with span("Feeds", "stage"):
            for name, filling in self._fillings.items():
                self._infeeds[name].read_into(filling, self._count)

    def _complete_steps(self) -> StagedChunk:
        """Returns the steps that all infeeds have elements for; what they have beyond goes back."""
        common = min((filling.steps for filling in self._fillings.values()), default=self._count)
        ended = (each.error for each in self._fillings.values() if each.error is not None and each.steps == common)
        error = next(ended, None)
        for name, filling in self._fillings.items():
            self._infeeds[name].put_back(filling, common)
        staged = {name: filling.staged() for name, filling in self._fillings.items()}
        return StagedChunk(staged, common, error, self._position)
