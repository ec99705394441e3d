"""Feeds the batches of a Python iterator to a step loop."""

from __future__ import annotations

import abc
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ipu_tf._loops.feature_names import feature_names
from ipu_tf.device.errors import InfeedExhausted, InfeedTimeout
from ipu_tf.device.feeds import synthetic
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.timeout import TimedRead, waiting, watched
from ipu_tf.device.program.program import Types
from ipu_tf.lowering.programs.tensorflow_errors import to_tensorflow_error

Arrays = tuple[np.ndarray, ...]


class BatchFeed(abc.ABC):
    """Feeds the elements of a Python iterator to a step loop; reads the first element for its shapes.

    With `sizes_vary`, batches of another size than the first one's are left for `take_remainder`:

        batches      8 8 8 5 8 8          group = 1: the infeed ends before the 5, and goes on after it
                     8 8 | 8 5 | 8 8      group = 2: the remainder is a whole group, here of 8 and 5

    Args:
        iterator: gives elements, structures of arrays.
        on_cast: called with each 64-bit dtype of the first element, which becomes a 32-bit one.
        sizes_vary: whether elements may have other first dimensions than the first element; else they are an error.

    Attributes:
        check: called before an element is taken; may raise.
        on_open, on_read: called before the first element is read, and with the arrays of each that is read.
        group: elements that a program takes together, all of one shape. Set before the first is taken.
    """

    reads_batches = True
    """Whether `on_read` is called for each batch; else for vectors of indices of samples."""

    def __init__(
        self,
        iterator: Iterator[Any],
        on_cast: Callable[[str, str], None] = lambda was, becomes: None,
        sizes_vary: bool = False,
    ) -> None:
        self._iterator = iterator
        self._on_cast = on_cast
        self._sizes_vary = sizes_vary
        self._remainder: list[Arrays] = []
        self.group = 1
        self._first: list[Any] = []
        self._spec: Any = None
        self._infeed: Infeed | None = None
        self.check: Callable[[], None] = lambda: None
        self.on_open: Callable[[], None] = lambda: None
        self.on_read: Callable[[Arrays], None] = lambda arrays: None

    def spec(self) -> Any:
        """Shape and dtype of each array of the first element, which all others have to have.

        Raises:
            StopIteration: if there is no element left.
            tf.errors.DeadlineExceededError: if none comes for a long time.
        """
        if self._spec is None:
            self.on_open()
            try:
                self._first.append(TimedRead([], self._next_with_timeout).result())
            except InfeedTimeout as error:
                raise to_tensorflow_error(error) from None
            self._spec = self._spec_of(self._first[0])
        return self._spec

    @functools.cached_property
    def spec_name(self) -> str:
        """Returns a name that feeds with equal `spec` share, and no other; raises as `spec` does."""
        return str(self.spec())

    @property
    def types(self) -> Types:
        """Shape and dtype of each array of an element that is not None, in order; raises as `spec` does."""
        return self._types_of(self.spec())

    def as_infeed(self, name: str) -> Infeed:
        """The elements as an infeed of this name."""
        if self._infeed is None:
            self._infeed = self._new_infeed(name)
        self._infeed.name, self._infeed.aligned = name, True
        return self._infeed

    @property
    def at_remainder(self) -> bool:
        """Whether the next elements are known to be a remainder."""
        return bool(self._remainder)

    def take_remainder(self) -> list[Any]:
        """Returns the elements that the infeed ended before, at most a group; an empty list at the end of the data."""
        taken, self._remainder = self._remainder, []
        if taken:
            self._infeed = None  # it has ended; the next one goes on behind the remainder
        return [self._packed(arrays) for arrays in taken]

    def end(self) -> None:
        """Drops the infeed, which refers to the feed as well.

        So the iterator ends, with its threads, when it is not used any more, not when Python next collects cycles.
        """
        self._infeed = None

    def skip(self, batches: int) -> int:
        """Discards the first batches of the data; returns how many there were. The first one's shape is that of all."""
        self.spec()
        return sum(1 for _ in itertools.islice(self._elements(), batches))

    def skip_elements(self, steps: int, replicas: int) -> int:
        """Discards the elements of up to `steps` steps; returns for how many there were elements."""
        assert self._infeed is not None
        for taken in range(steps * replicas):
            try:
                self._infeed.next()
            except InfeedExhausted:
                return taken // replicas
        return steps

    @abc.abstractmethod
    def _spec_of(self, element: Any) -> Any:
        """The structure of an element, of shapes and dtypes."""

    @abc.abstractmethod
    def _types_of(self, spec: Any) -> Types:
        """Shape and dtype of each array of an element."""

    @abc.abstractmethod
    def _arrays_of(self, element: Any) -> Arrays:
        """The arrays of an element."""

    @abc.abstractmethod
    def _packed(self, arrays: Arrays) -> Any:
        """The element of these arrays."""

    def _new_infeed(self, name: str) -> Infeed:
        spec = self.spec()
        source = watched(self._name, self._elements if self.group == 1 or not self._sizes_vary else self._groups)
        return Infeed(name, self._types_of(spec), source, feature_names(spec), self._leave_for_remainder)

    def _leave_for_remainder(self, element: Any) -> bool:
        """Keeps an element of another size for `take_remainder`; returns False if its shape is an error."""
        if not self._sizes_vary or not self._differs_in_size(element):
            return False
        self._remainder = [tuple(element)]
        return True

    def _differs_in_size(self, arrays: Arrays) -> bool:
        """Returns whether nothing but the first dimensions of an element differ from those of the first element."""
        pairs = zip(arrays, self._types_of(self._spec), strict=True)
        return all(array.ndim == len(wanted.shape) and array.shape[1:] == wanted.shape[1:] for array, wanted in pairs)

    def _groups(self) -> Iterator[Arrays]:
        """Yields the elements of complete groups of one shape; the group that is none is the remainder."""
        elements, shapes = self._elements(), [wanted.shape for wanted in self._types_of(self.spec())]
        while group := list(itertools.islice(elements, self.group)):
            odd = next((each for each in group if [array.shape for array in each] != shapes), None)
            if odd is not None and not self._differs_in_size(odd):
                yield odd  # the infeed raises its error
            if odd is not None or len(group) < self.group:
                self._remainder = group
                return
            yield from group

    def _next(self) -> Any:
        """The next element."""
        return next(self._iterator)

    def _reader(self) -> Callable[[], Arrays]:
        """Yields the arrays of each element."""
        return lambda: self._arrays_of(self._next())

    def _name(self) -> str:
        return "data of a step loop" if self._infeed is None else self._infeed.name

    def _next_with_timeout(self) -> Any:
        with waiting(self._name(), 0):
            return self._next()

    def _elements(self) -> Iterator[Arrays]:
        read = self._reader()
        while not self._remainder:
            self.check()
            try:
                arrays = self._arrays_of(self._first.pop()) if self._first else read()
            except StopIteration:
                return
            self.on_read(arrays)
            yield synthetic.infeed_element(arrays) if synthetic.current().feeds else arrays
