"""`Infeed`: host side of an infeed; keeps its position in the dataset between executions."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from ipu_tf.device.errors import ElementShapeError, InfeedExhausted
from ipu_tf.device.feeds.number_range import check_numbers
from ipu_tf.device.feeds.staging import Staged
from ipu_tf.device.program.program import Types

Element = Sequence[np.ndarray]


class Infeed:
    """Named stream of elements of a dataset.

    Args:
        name: unique in the process.
        types: shape and dtype of each tensor of an element.
        open_source: returns an iterator over elements from the start of the data.
        names: name of each tensor of an element in errors; by default its number.
        ends_before: called with an element whose shapes are not those of `types`; returns whether the stream ends
            before it. Otherwise such an element is an error.

    Elements are dequeued in order, each once; `return_elements` returns those that a loop did not use.

    Attributes:
        replicas: number of replicas of the programs that dequeue elements; None before the first.
        may_block: whether reading an element may block, even for ever.
        aligned: whether all instances have to be at the same element of it.
    """

    may_block = True
    aligned = False

    def __init__(
        self,
        name: str,
        types: Types,
        open_source: Callable[[], Iterator[Element]],
        names: Sequence[str] = (),
        ends_before: Callable[[Element], bool] = lambda element: False,
    ) -> None:
        self.name = name
        self.types = types
        self._shapes = tuple(wanted.shape for wanted in types)
        self._dtypes = [np.dtype(wanted.dtype) for wanted in types]
        self._names = names or [f"tensor {index}" for index in range(len(types))]
        self.replicas: int | None = None
        self._open_source = open_source
        self._ends_before = ends_before
        self._lock = threading.RLock()
        self._returned: collections.deque[Element] = collections.deque()
        self._source: Iterator[Element] | None = None
        self._taken = 0
        self._read = False

    def restart(self) -> None:
        """Restarts at the start of the data."""
        with self._lock:
            self._returned.clear()
            self._source = self._open_source()
            self._taken = 0
            self._read = False

    @property
    def unread(self) -> bool:
        """Whether the data is open, and nothing of it was read."""
        return self._source is not None and not self._read

    @property
    def taken(self) -> int:
        """Number of elements dequeued since the start of the data."""
        return self._taken

    def next(self) -> Element:
        """Dequeues the next element.

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
                self._read = True
                try:
                    element = next(self._source)
                except StopIteration:
                    raise InfeedExhausted(self.name, self._taken) from None
                self._check(element)
            self._taken += 1
            return element

    def _check(self, element: Element) -> None:
        # One comparison for each element: with small elements a step is over in tens of microseconds.
        shapes = tuple([value.shape for value in element])
        if shapes != self._shapes:
            if self._ends_before(element):
                raise InfeedExhausted(self.name, self._taken)
            pairs = enumerate(zip(shapes, self._shapes, strict=True))
            index, (shape, wanted) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
            raise ElementShapeError(self.name, self._taken, index, wanted, shape)
        if [value.dtype for value in element] != self._dtypes:
            for name, value, dtype in zip(self._names, element, self._dtypes, strict=True):
                check_numbers(value, dtype, f"Feature {name} of element {self._taken} of '{self.name}'")

    def fill(self, buffers: tuple[np.ndarray, ...], count: int) -> Staged:
        """Stacks the next elements into staging buffers, for `count` steps; fewer, with the error, if the source ends.

        A step takes one element, or one for each replica: `[capacity, replicas, *shape]`.
        """
        flat, replicas = self._flat(buffers)
        for index in range(count * replicas):
            try:
                element = self.next()
            except BaseException as error:  # noqa: B036 - raised in the thread that runs the program
                self._return(flat, range(index - index % replicas, index))
                return Staged(buffers, index // replicas, error)
            for buffer, value in zip(flat, element, strict=True):
                buffer[index] = value
        return Staged(buffers, count)

    def return_elements(self, staged: Staged, first: int) -> None:
        """Returns the staged elements from step `first` on to the front of the stream."""
        flat, replicas = self._flat(staged.arrays)
        self._return(flat, range(first * replicas, staged.count * replicas))

    def _flat(self, buffers: tuple[np.ndarray, ...]) -> tuple[list[np.ndarray], int]:
        """Returns staging buffers as `[elements, *shape]`, without a copy, and their number of replicas."""
        flat = [_elements_of(buffer, wanted) for buffer, wanted in zip(buffers, self.types, strict=True)]
        return flat, len(flat[0]) // len(buffers[0]) if len(buffers[0]) else 1

    def _return(self, flat: list[np.ndarray], indices: range) -> None:
        """Puts elements back in front of the stream."""
        with self._lock:
            self._returned.extendleft([np.array(buffer[index]) for buffer in flat] for index in reversed(indices))
            self._taken -= len(indices)


def _elements_of(buffer: np.ndarray, wanted: jax.ShapeDtypeStruct) -> np.ndarray:
    """Reshapes a staging buffer to `[elements, *shape]`, whatever the number of replicas; no copy."""
    if buffer.ndim == len(wanted.shape) + 1:
        return buffer
    return buffer.reshape(buffer.shape[0] * buffer.shape[1], *wanted.shape)  # not -1: a batch may have no samples
