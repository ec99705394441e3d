"""The host's end of an infeed: a position in a stream of elements that persists over executions."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ipu_tf.device.errors import ElementShapeError, InfeedExhausted
from ipu_tf.device.program import Types
from ipu_tf.device.staging import Staged

Element = Sequence[np.ndarray]


class Infeed:
    """A named stream of elements.

    Args:
        name: unique in the process.
        types: shape and dtype of each tensor of an element.
        open_source: gives an iterator over elements from the start of the data.

    Elements are handed out in order, each once; `give_back` returns those that a loop did not use.
    """

    def __init__(self, name: str, types: Types, open_source: Callable[[], Iterator[Element]]) -> None:
        self.name = name
        self.types = types
        self._open_source = open_source
        self._lock = threading.RLock()
        self._returned: collections.deque[Element] = collections.deque()
        self._source: Iterator[Element] | None = None
        self._taken = 0

    def restart(self) -> None:
        """Goes back to the start of the data."""
        with self._lock:
            self._returned.clear()
            self._source = self._open_source()
            self._taken = 0

    @property
    def taken(self) -> int:
        """How many elements were handed out since the start of the data."""
        return self._taken

    def next(self) -> Element:
        """The next element.

        Raises:
            InfeedExhausted: at the end of the data.
        """
        with self._lock:
            if self._source is None:
                self.restart()
            assert self._source is not None
            if self._returned:
                element = self._returned.popleft()
            else:
                try:
                    element = next(self._source)
                except StopIteration:
                    raise InfeedExhausted(self.name, self._taken) from None
                self._check(element)
            self._taken += 1
            return element

    def _check(self, element: Element) -> None:
        for index, (value, wanted) in enumerate(zip(element, self.types, strict=True)):
            if value.shape != wanted.shape:
                raise ElementShapeError(self.name, self._taken, index, wanted.shape, value.shape)

    def fill(self, buffers: tuple[np.ndarray, ...], count: int) -> Staged:
        """Stacks the next `count` elements into staging buffers; fewer, with the error, if the source ends."""
        for row in range(count):
            try:
                element = self.next()
            except BaseException as error:  # noqa: B036 - handed on to the thread that runs the program
                return Staged(buffers, row, error)
            for buffer, value in zip(buffers, element, strict=True):
                buffer[row] = value
        return Staged(buffers, count)

    def give_back(self, staged: Staged, first: int) -> None:
        """Returns the staged elements from row `first` on, for whoever asks next."""
        with self._lock:
            rows = range(staged.count - 1, first - 1, -1)
            self._returned.extendleft([np.array(buffer[row]) for buffer in staged.arrays] for row in rows)
            self._taken -= len(rows)
