"""`Infeed`: host side of an infeed; keeps its position in the dataset between executions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from ipu_tf.device.errors import ElementShapeError, InfeedExhausted
from ipu_tf.device.feeds.element_stream import ElementStream
from ipu_tf.device.feeds.number_range import check_numbers
from ipu_tf.device.feeds.reading import Element, Filling, Reading
from ipu_tf.device.feeds.staging import Staged
from ipu_tf.device.program.program import Types


class Infeed(ElementStream):
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
        super().__init__(name, open_source)
        self.types = types
        self._shapes = tuple(wanted.shape for wanted in types)
        self._dtypes = [np.dtype(wanted.dtype) for wanted in types]
        self._names = names or [f"tensor {index}" for index in range(len(types))]
        self.replicas: int | None = None
        self._ends_before = ends_before

    def _check(self, element: Element) -> None:
        # One comparison for each element: with small elements a step is over in tens of microseconds.
        shapes = tuple([value.shape for value in element])
        if shapes != self._shapes:
            if self._ends_before(element):
                raise InfeedExhausted(self.name, self.taken)
            pairs = enumerate(zip(shapes, self._shapes, strict=True))
            index, (shape, wanted) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
            raise ElementShapeError(self.name, self.taken, index, wanted, shape)
        if [value.dtype for value in element] != self._dtypes:
            for name, value, dtype in zip(self._names, element, self._dtypes, strict=True):
                check_numbers(value, dtype, f"Feature {name} of element {self.taken} of '{self.name}'")

    def filling(self, buffers: tuple[np.ndarray, ...], reading: Reading) -> Filling:
        """Returns staging buffers as `read_into` fills them, `[capacity, *shape]` or `[capacity, replicas, *shape]`."""
        return Filling(buffers, self._flat(buffers), reading)

    def read_into(self, filling: Filling, count: int) -> None:
        """Stacks the next elements for `count` steps; fewer if the source ends, or the reading is stopped or abandoned.

        A step takes one element, or one for each replica.
        """
        wanted = count * filling.replicas
        try:
            while filling.elements < wanted and not filling.of.stopped and self.read(filling.store):
                pass
        except BaseException as error:  # noqa: B036 - raised in the thread that runs the program
            filling.error = error

    def put_back(self, filling: Filling, first: int = 0) -> None:
        """Returns the elements from step `first` on to the front of the stream, those of no complete step as well."""
        kept = min(first * filling.replicas, filling.elements)
        self.return_elements_of(filling.flat, range(kept, filling.elements))
        filling.elements = kept

    def fill(self, buffers: tuple[np.ndarray, ...], count: int) -> Staged:
        """As `read_into`, of a reading that nobody stops. An error remains in the stream until `take_error`."""
        filling = self.filling(buffers, Reading())
        self.read_into(filling, count)
        staged = filling.staged()
        self.put_back(filling, staged.count)
        return staged

    def return_elements(self, staged: Staged, first: int) -> None:
        """Returns the staged elements from step `first` on to the front of the stream."""
        filling = self.filling(staged.arrays, Reading())
        self.return_elements_of(filling.flat, range(first * filling.replicas, staged.count * filling.replicas))

    def _flat(self, buffers: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        """Returns staging buffers as `[elements, *shape]`, without a copy."""
        return [_elements_of(buffer, wanted) for buffer, wanted in zip(buffers, self.types, strict=True)]


def _elements_of(buffer: np.ndarray, wanted: jax.ShapeDtypeStruct) -> np.ndarray:
    """Reshapes a staging buffer to `[elements, *shape]`, whatever the number of replicas; no copy."""
    if buffer.ndim == len(wanted.shape) + 1:
        return buffer
    return buffer.reshape(buffer.shape[0] * buffer.shape[1], *wanted.shape)  # not -1: a batch may have no samples
