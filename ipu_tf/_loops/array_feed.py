"""Feeds batches gathered from NumPy arrays to a step loop, in the order of a dataset of indices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._loops.feature_names import feature_names
from ipu_tf._loops.tensor_feed import TensorFeed
from ipu_tf.device.feeds.array_infeed import ArrayInfeed, SampleOrder, batch_of
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.number_range import check_numbers
from ipu_tf.lowering.tensorflow import tf_values


class ArrayFeed(TensorFeed):
    """Batches gathered from arrays by index, as an infeed or as a read-only iterator.

    Args:
        arrays: a structure of arrays `[samples, ...]`, and of `None`s. They are read while the loop runs.
        indices: of the samples to give, as vectors of any length: a dataset that TensorFlow is told not to tune, or
            any other iterable. Its iterator, which takes TensorFlow milliseconds to make, is made when samples are
            read.
        batch: samples of a batch; at most `samples`.
        on_cast: called with each 64-bit dtype, which becomes a 32-bit one.
        sizes_vary: whether samples at the end that do not fill a batch, or a group, are given to `take_remainder`; else
            they are left out.

    Raises:
        NumberOutOfRange: for a number of 64 bits that has no place in 32.

    >>> feed = ArrayFeed((np.float32([[1], [2], [3]]), np.int32([7, 8, 9])), [np.array([2, 0])], batch=1)
    >>> [(x.tolist(), y.tolist()) for x, y in feed]
    [([[3.0]], [9]), ([[1.0]], [7])]
    """

    def __init__(
        self,
        arrays: Any,
        indices: Iterable[Any],
        batch: int,
        on_cast: Callable[[str, str], None] = lambda was, becomes: None,
        sizes_vary: bool = False,
    ) -> None:
        super().__init__(iter(()), on_cast, sizes_vary)
        self._indices = indices
        self._batch = batch
        self._read_ahead: list[np.ndarray] | None = None
        self._spec = tf.nest.map_structure(lambda array: self._batch_spec(array, batch), arrays)
        types, names = iter(self._types_of(self._spec)), iter(feature_names(self._spec))
        self._arrays = tf.nest.map_structure(
            lambda array: None if array is None else _narrowed(array, np.dtype(next(types).dtype), next(names)), arrays
        )

    reads_batches = False

    @property
    def samples(self) -> list[np.ndarray]:
        """Returns the arrays, of all samples, that are not None."""
        return [array for array in tf.nest.flatten(self._arrays) if array is not None]

    def skip(self, batches: int) -> int:
        """As for other feeds; the order of all samples is read, but none of them."""
        blocks = list(self._blocks()) if batches else []
        samples = np.concatenate(blocks) if blocks else np.empty(0, np.int64)
        self._read_ahead = [samples[batches * self._batch :]] if batches else None
        return min(batches, -(-len(samples) // self._batch))

    @functools.cached_property
    def _order(self) -> SampleOrder:
        blocks = self._blocks() if self._read_ahead is None else iter(self._read_ahead)
        return SampleOrder(blocks, self._batch, self.group if self._sizes_vary else 1)

    @property
    def at_remainder(self) -> bool:
        """Whether only samples that fill no group are left."""
        return self._sizes_vary and self._order.at_rest

    def take_remainder(self) -> list[Any]:
        """Returns batches of the samples that fill no group; an empty list if there are none."""
        return [self._batch_of(samples) for samples in self._order.take_rest()] if self._sizes_vary else []

    def __iter__(self) -> ArrayFeed:
        return self

    def __next__(self) -> Any:
        for samples in self._order.take(1):
            return self._batch_of(samples)
        for batch in self.take_remainder():
            return batch
        raise StopIteration

    def _batch_of(self, samples: np.ndarray) -> Any:
        def taken(array: np.ndarray | None, spec: tf.TensorSpec | None) -> Any:
            if array is None or spec is None:
                return None
            return batch_of(array, samples).astype(spec.dtype.as_numpy_dtype, copy=False)

        return tf.nest.map_structure(taken, self._arrays, self._spec)

    def _new_infeed(self, name: str) -> Infeed:
        return ArrayInfeed(name, self._types_of(self._spec), self.samples, self._order, lambda: self.check())

    def _batch_spec(self, array: Any, batch: int) -> Any:
        return None if array is None else self._leaf_spec(np.broadcast_to(array[:1], (batch, *array.shape[1:])))

    def _blocks(self) -> Iterator[np.ndarray]:
        iterator = self._opened()
        read = tf_values.element_reader(iterator) or (lambda: (np.asarray(next(iterator)),))
        while True:
            try:
                (block,) = read()
            except StopIteration:
                return
            self.on_read((block,))
            yield block

    def _opened(self) -> Iterator[Any]:
        if not isinstance(self._indices, tf.data.Dataset):
            return iter(self._indices)
        with tf_values.eager_mode():
            return tf_values.stock_iterator(self._indices, tuned=False)


def _narrowed(array: Any, dtype: np.dtype, name: str) -> np.ndarray:
    """An array in the dtype that the device is fed. It is checked here once, not with every batch."""
    check_numbers(np.asarray(array), dtype, f"Feature {name}")
    return np.asarray(array, dtype)
