"""`ArrayInfeed`: an infeed that gathers batches from NumPy arrays, a whole chunk at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ipu_tf.device.errors import InfeedExhausted
from ipu_tf.device.feeds import synthetic
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.reading import Element, Filling
from ipu_tf.device.program.program import Types


class SampleOrder:
    """Order of samples: the sample indices of each batch.

    Args:
        blocks: gives the indices of samples, in order, in vectors of any length.
        batch: samples of a batch.
        group: batches are given out in groups of so many. Samples at the end that do not fill a group are the `rest`.

    >>> order = SampleOrder(iter([np.arange(11)]), batch=2, group=2)
    >>> order.take(3).tolist(), order.at_rest, order.take(3).tolist(), order.at_rest
    ([[0, 1], [2, 3], [4, 5]], False, [[6, 7]], True)
    >>> [samples.tolist() for samples in order.take_rest()], order.at_rest
    ([[8, 9], [10]], False)
    """

    def __init__(self, blocks: Iterator[np.ndarray], batch: int, group: int = 1) -> None:
        self._blocks = blocks
        self._batch = batch
        self._group = batch * group
        self._left = np.empty(0, np.int64)
        self._given = 0
        self._ended = False

    @property
    def at_rest(self) -> bool:
        """Whether only samples of the `rest` are left."""
        self._left = self._read(2 * self._group)
        return self._ended and 0 < len(self._left) < self._group - self._given % self._group

    def take_rest(self) -> list[np.ndarray]:
        """Returns the sample indices that fill no group, in batches of which the last may be smaller."""
        self.take(0)
        samples, self._left = self._left, self._left[:0]
        self._given = 0
        return [samples[first : first + self._batch] for first in range(0, len(samples), self._batch)]

    def take(self, batches: int) -> np.ndarray:
        """Returns sample indices of the next batches, `[n, batch]`; fewer than requested at the end of the data."""
        wanted = batches * self._batch
        # Also reads the group that the last of them belongs to, and the next one: is anything but the rest left then?
        samples = self._read(wanted + 2 * self._group)
        complete = (self._given + len(samples)) // self._group * self._group - self._given
        whole = min(wanted, max(0, complete))
        self._left = samples[whole:]
        self._given += whole
        return samples[:whole].reshape(-1, self._batch)

    def _read(self, wanted: int) -> np.ndarray:
        """Returns at least so many of the samples that are left; fewer at the end of the data."""
        parts, have = [self._left], len(self._left)
        while have < wanted and not self._ended:
            block = next(self._blocks, None)
            if block is None:
                self._ended = True
                break
            parts.append(block)
            have += len(block)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def put_back(self, batches: np.ndarray) -> None:
        """Returns batches of indices, `[n, batch]`, to the front of the order."""
        self._left = np.concatenate([batches.reshape(-1), self._left])
        self._given -= batches.size


def batch_of(array: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Gathers samples of an array by index, for reading only: contiguous ones are a view, others are copied.

    >>> array = np.arange(5)
    >>> batch_of(array, np.array([1, 2, 3])).base is array, batch_of(array, np.array([3, 1])).tolist()
    (True, [3, 1])
    """
    first, size = int(samples[0]), len(samples)
    return array[first : first + size] if np.array_equal(samples, np.arange(first, first + size)) else array[samples]


class ArrayInfeed(Infeed):
    """Named stream of batches, gathered from arrays.

    Args:
        name: unique in the process.
        types: shape and dtype of each tensor of an element, `[batch, ...]`.
        arrays: one array for each, `[samples, ...]`, of that dtype.
        order: the samples of each batch.
        check: called before elements are dequeued; may raise.

    >>> import jax
    >>> order = SampleOrder(iter([np.array([3, 1, 0]), np.array([2])]), batch=2)
    >>> types = (jax.ShapeDtypeStruct((2,), np.float32),)
    >>> infeed = ArrayInfeed("samples", types, (np.float32([0, 10, 20, 30]),), order, lambda: None)
    >>> infeed.next()[0].tolist(), infeed.next()[0].tolist()
    ([30.0, 10.0], [0.0, 20.0])
    """

    may_block = False

    def __init__(
        self, name: str, types: Types, arrays: Sequence[np.ndarray], order: SampleOrder, check: Callable[[], None]
    ) -> None:
        super().__init__(name, types, self._one_by_one)
        self._source = self._one_by_one()
        self._arrays = arrays
        self._order = order
        self._check_first_enqueue = check

    def read_into(self, filling: Filling, count: int) -> None:
        """As `Infeed.read_into`, gathering all samples of an array at once."""
        with self._reading:
            if self._queued or synthetic.current().feeds:
                super().read_into(filling, count)
                return
            try:
                chosen = self._next_batches(count * filling.replicas)
            except BaseException as error:  # noqa: B036 - raised in the thread that runs the program
                filling.error = error
                return
            whole = len(chosen) // filling.replicas * filling.replicas
            if self._gathered(filling, chosen[:whole]):
                self._order.put_back(chosen[whole:])
                if whole < count * filling.replicas:
                    filling.error = InfeedExhausted(self.name, self.taken)
            else:
                self._order.put_back(chosen)

    def _gathered(self, filling: Filling, chosen: np.ndarray) -> bool:
        """Gathers batches into staging buffers; returns False, and leaves them, if the reading was abandoned."""
        with filling.of.lock:
            if filling.of.abandoned:
                return False
            for buffer, array in zip(filling.flat, self._arrays, strict=True):
                out = buffer[: len(chosen)].reshape(-1, *array.shape[1:])
                # Indices are those of samples; with mode="raise" numpy would fill a buffer of its own first.
                np.take(array, chosen.reshape(-1), axis=0, out=out, mode="clip")
            filling.elements = len(chosen)
        self._given += len(chosen)
        return True

    def _next_batches(self, batches: int) -> np.ndarray:
        self._check_first_enqueue()
        return self._order.take(batches)

    def _one_by_one(self) -> Iterator[Element]:
        while len(samples := self._next_batches(1)):
            element = tuple(batch_of(array, samples[0]) for array in self._arrays)
            yield synthetic.infeed_element(element) if synthetic.current().feeds else element
