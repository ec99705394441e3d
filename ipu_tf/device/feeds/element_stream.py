"""`ElementStream`: elements of a source, each dequeued once, with those in front that came back."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterator

import numpy as np

from ipu_tf.device.errors import InfeedExhausted
from ipu_tf.device.feeds.reading import Element, Slot


class ElementStream:
    """Elements of a source, from its start.

        source --one thread at a time--> queue of what came back, and of errors --> who reads

    One thread at a time reads the source. It may be blocked there, so what is in the queue is read without it.

    Args:
        name: unique in the process.
        open_source: returns an iterator over elements from the start of the data.

    Attributes:
        reader: ident of the thread that is reading the source; None if none is.
    """

    def __init__(self, name: str, open_source: Callable[[], Iterator[Element]]) -> None:
        self.name = name
        self.reader: int | None = None
        self._open_source = open_source
        self._source: Iterator[Element] | None = None
        self._reading = threading.RLock()
        self._lock = threading.Lock()
        self._queued: collections.deque[Element | BaseException] = collections.deque()
        self._given = self._back = 0
        self._read = False

    def restart(self) -> None:
        """Restarts at the start of the data."""
        with self._reading, self._lock:
            self._queued.clear()
            self._source = self._open_source()
            self._given = self._back = 0
            self._read = False

    @property
    def unread(self) -> bool:
        """Whether the data is open, and nothing of it was read."""
        return self._source is not None and not self._read

    @property
    def taken(self) -> int:
        """Number of elements dequeued since the start of the data."""
        return self._given - self._back

    def next(self) -> Element:
        """Dequeues the next element.

        Raises:
            InfeedExhausted: at the end of the data.
        """
        slot = Slot()
        try:
            self.read(slot.store)
        except BaseException as error:
            self.take_error(error)
            raise
        assert slot.element is not None
        return slot.element

    def read(self, store: Callable[[Element], bool]) -> bool:
        """Dequeues the next element into a store; it stays in the infeed where that refuses it, by returning False.

        An error of the source stays as well, until `take_error`: who reads ahead need not come to it.

        Returns:
            What the store returned.
        """
        if self._queued and (stored := self._read_queued(store)) is not None:
            return stored
        with self._reading:  # what a thread before could not store is in the queue now
            if self._queued and (stored := self._read_queued(store)) is not None:
                return stored
            return self._read_source(store)

    def _read_queued(self, store: Callable[[Element], bool]) -> bool | None:
        """Reads an element that is in front of the source; returns None if there is none any more."""
        with self._lock:
            if not self._queued:
                return None
            first = self._queued[0]
            if isinstance(first, BaseException):
                raise first
            stored = store(first)
            if stored:
                self._queued.popleft()
                self._back -= 1
            return stored

    def _read_source(self, store: Callable[[Element], bool]) -> bool:
        # Run for each element: with small ones a step is over in tens of microseconds.
        if self._source is None:
            self.restart()
        assert self._source is not None
        self._read, self.reader = True, threading.get_ident()
        try:
            element = next(self._source)
            self._check(element)
        except StopIteration:
            raise InfeedExhausted(self.name, self.taken) from None
        except Exception as error:
            self._keep_error(error)
            raise
        finally:
            self.reader = None
        if store(element):
            self._given += 1
            return True
        with self._lock:
            self._queued.append([np.array(value) for value in element])
        return False

    def _keep_error(self, error: Exception) -> None:
        if not isinstance(error, InfeedExhausted):  # the end is found again
            with self._lock:
                self._queued.append(error)

    def take_error(self, error: BaseException | None) -> None:
        """Removes an error of the source that was raised: what is behind it can be read then."""
        with self._lock:
            kept = [each for each in self._queued if each is not error]
            if len(kept) < len(self._queued):
                self._queued = collections.deque(kept)

    def return_element(self, element: Element) -> None:
        """Returns an element that was not used to the front of the stream."""
        with self._lock:
            self._queued.appendleft(element)
            self._back += 1

    def return_elements_of(self, arrays: list[np.ndarray], indices: range) -> None:
        """Returns elements, stacked in an array for each tensor, to the front of the stream."""
        with self._lock:
            self._queued.extendleft([np.array(array[index]) for array in arrays] for index in reversed(indices))
            self._back += len(indices)

    def _check(self, element: Element) -> None:
        """Checks an element of the source; may raise."""
