"""`DataTracker`: which batches of its data a run has trained on, and how a resumed run gets to the next one.

    read by the device's feed     0 1 2 3 4 5 6 7
    trained on                    0 1 2 3 4          the position; what was read ahead is read again

A position is a number of batches of an open iterator over the data. A resumed run opens the iterator again, reads so
many batches, and compares a checksum of them: data that come in another order, or are other data, are noticed.
"""

from __future__ import annotations

import collections
import contextvars
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ipu_tf._checkpoints.checkpoint_folder import CheckpointError
from ipu_tf._checkpoints.random_state import host_random_state, restore_host_random_state
from keras_ipu.resume.data_position import DataPosition, checksum_of, other_data
from keras_ipu.stock.arrays import replay_epochs

current_tracker: contextvars.ContextVar[DataTracker | None] = contextvars.ContextVar("ipu_data_tracker", default=None)
"""That of this thread's `fit`, if it is to be resumed."""


class DataTracker:
    """Counts the batches that a `fit` takes, and moves a resumed one to its position.

    Attributes:
        iterator: Keras's epoch iterator over the data for training, once it is made.
    """

    def __init__(self) -> None:
        self.iterator: Any = None
        self._elements: Any = None
        self._opened = 0
        self._counted = False
        self._last_read = (0, 0)
        self._read: collections.deque[tuple[int, int]] = collections.deque([(0, 0)])
        self._random: Any = None
        self._resumed: DataPosition | None = None
        self._entered: DataPosition | None = None

    def claim(self, iterator: Any) -> DataTracker | None:
        """Takes the first epoch iterator of a `fit`, which is the one for training; returns None to others."""
        if self.iterator is not None:
            return None
        self.iterator = iterator
        return self

    def resume(self, position: DataPosition, ended: int) -> None:
        """Has the data begin at a position, before which so many epochs of the run ended."""
        self._resumed = self._entered = position
        self._opened, self._last_read = position.opened, position.last_read
        replay_epochs(self.iterator.data_adapter, ended)
        number, checksum = position.last_read
        for opened, feed in enumerate(self.iterator.feeds_before(position.opened), 1):
            if opened == number:
                feed.on_read = self._count
                feed.skip(1)
                if self._read.pop()[1] != checksum:
                    raise other_data(1)

    def opened(self, elements: Any) -> None:
        """Called with an epoch's new `ElementIterator`, before anything is read of it; moves it to the position.

        Args:
            elements: the iterator.

        Raises:
            CheckpointError: if the data are others than they were.
        """
        self._elements, self._random, self._counted = elements, None, False
        self._read = collections.deque([(0, 0)])
        elements.tracked_feed.on_open, elements.tracked_feed.on_read = self._began, self._count
        position, self._resumed = self._resumed, None
        if not self.iterator.opens_when_read:
            self._count_opened()
        if position is not None:
            self._skip(position)

    def _skip(self, position: DataPosition) -> None:
        if not position.batches:
            return
        now = host_random_state()
        if position.random is not None:
            restore_host_random_state(position.random)
        feed = self._elements.tracked_feed
        skipped = feed.skip(position.batches)
        checksum = self._checksum(position.batches)
        restore_host_random_state(now)
        if skipped < position.batches:
            raise CheckpointError(
                f"The data must have the {position.batches} batches that the run has trained on. Received: {skipped}."
            )
        if checksum != position.checksum:
            raise other_data(position.batches)

    def steps_to_skip(self) -> tuple[int, int]:
        """Returns how many steps of the epoch at hand ran already, and steps of the iterator before it; once."""
        position, self._entered = self._entered, None
        return (0, 0) if position is None else (position.step, position.before)

    @property
    def ahead(self) -> bool:
        """Whether the device has run steps that Keras has not asked for yet."""
        return self._elements is not None and bool(self._elements.waiting)

    @property
    def steps_of_epoch(self) -> int | None:
        """Steps of an epoch; None as long as they are unknown."""
        count: int | None = self.iterator.steps_of_epoch
        return count

    def within_epoch(self, epoch: int, step: int) -> DataPosition:
        """Returns the position after so many steps of an epoch."""
        return self._position(DataPosition(epoch, step, self.iterator.steps_seen - step, self._opened - self._counted))

    def at_end(self, epoch: int) -> DataPosition:
        """Returns the position after the last step of an epoch."""
        if not self.iterator.goes_on:
            length = self.iterator.num_batches
            return DataPosition(epoch + 1, opened=self._opened, length=length, last_read=self._last_read)
        return self._position(DataPosition(epoch + 1, 0, self.iterator.steps_seen, self._opened - self._counted))

    def _position(self, position: DataPosition) -> DataPosition:
        batches = (position.before + position.step) * self.iterator.replicas
        random = self._random if batches else None
        return dataclasses.replace(
            position,
            batches=batches,
            length=self.iterator.num_batches,
            checksum=self._checksum(batches),
            random=random,
            last_read=self._last_read,
        )

    def _began(self) -> None:
        self._random = host_random_state()
        self._count_opened()

    def _count_opened(self) -> None:
        self._opened += not self._counted
        self._counted = True

    def _count(self, arrays: Sequence[np.ndarray]) -> None:
        """Called with each batch that is read, maybe in another thread."""
        number, checksum = self._read[-1]
        self._read.append((number + 1, checksum_of(arrays, checksum)))
        if number == 0:
            self._last_read = (self._opened, self._read[-1][1])

    def _checksum(self, batches: int) -> int:
        """Returns the checksum of the first batches, of which those before are not asked for again."""
        if not self._elements.tracked_feed.reads_batches:
            return self._read[-1][1]
        while self._read[0][0] < batches and len(self._read) > 1:
            self._read.popleft()
        return self._read[0][1]

    def forget(self) -> None:
        """Forgets checksums of batches that were trained on before the last execution."""
        self._checksum((self.iterator.steps_seen - self.iterator.steps_per_execution) * self.iterator.replicas)
