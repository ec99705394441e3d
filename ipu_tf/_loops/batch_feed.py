"""Feeds the batches of a Python iterator to a step loop."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ipu_tf._loops.feature_names import feature_names
from ipu_tf.device.errors import InfeedExhausted, InfeedTimeout
from ipu_tf.device.feeds import synthetic
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.timeout import Reading, waiting, watched
from ipu_tf.device.program.program import Types
from ipu_tf.lowering.programs.host_errors import to_tensorflow_error

Arrays = tuple[np.ndarray, ...]


class BatchFeed(abc.ABC):
    """Feeds the elements of a Python iterator to a step loop; reads the first element for its shapes.

    Args:
        iterator: gives elements, structures of arrays.
        on_cast: told of each 64-bit dtype of the first element, which becomes a 32-bit one.

    Attributes:
        check: called before an element is taken; may raise.
    """

    def __init__(
        self, iterator: Iterator[Any], on_cast: Callable[[str, str], None] = lambda was, becomes: None
    ) -> None:
        self._iterator = iterator
        self._on_cast = on_cast
        self._first: list[Any] = []
        self._spec: Any = None
        self._infeed: Infeed | None = None
        self.check: Callable[[], None] = lambda: None

    def spec(self) -> Any:
        """Shape and dtype of each array of the first element, which all others have to have.

        Raises:
            StopIteration: if there is no element left.
            tf.errors.DeadlineExceededError: if none comes for a long time.
        """
        if self._spec is None:
            try:
                self._first.append(Reading([], self._awaited).result())
            except InfeedTimeout as error:
                raise to_tensorflow_error(error) from None
            self._spec = self._spec_of(self._first[0])
        return self._spec

    @functools.cached_property
    def spec_name(self) -> str:
        """Returns a name that feeds with equal `spec` share, and no other; raises as `spec` does."""
        return str(self.spec())

    def as_infeed(self, name: str) -> Infeed:
        """The elements as an infeed of this name."""
        if self._infeed is None:
            self._infeed = self._new_infeed(name)
        self._infeed.name = name
        return self._infeed

    def end(self) -> None:
        """Drops the infeed, which refers to the feed as well.

        So the iterator ends, with its threads, when nobody uses it, not when Python next collects cycles.
        """
        self._infeed = None

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

    def _new_infeed(self, name: str) -> Infeed:
        spec = self.spec()
        return Infeed(name, self._types_of(spec), watched(self._name, self._elements), feature_names(spec))

    def _next(self) -> Any:
        """The next element."""
        return next(self._iterator)

    def _reader(self) -> Callable[[], Arrays]:
        """Yields the arrays of each element."""
        return lambda: self._arrays_of(self._next())

    def _name(self) -> str:
        return "data of a step loop" if self._infeed is None else self._infeed.name

    def _awaited(self) -> Any:
        with waiting(self._name(), 0):
            return self._next()

    def _elements(self) -> Iterator[Arrays]:
        read = self._reader()
        while True:
            self.check()
            try:
                arrays = self._arrays_of(self._first.pop()) if self._first else read()
            except StopIteration:
                return
            yield synthetic.infeed_element(arrays) if synthetic.current().feeds else arrays
