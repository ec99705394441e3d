"""Epoch iterator: the batches of each execution, for all replicas.

With R replicas a step takes R batches: replica `r` of step `i` gets batch `R * i + r`. Steps are counted for each
replica.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ipu_tf._arguments.counts import checked_count
from ipu_tf._checkpoints.checkpoint_folder import CheckpointError
from ipu_tf._config.state import graphcore_rules
from ipu_tf._data.narrow_dtypes import warn_cast
from ipu_tf._loops.array_feed import ArrayFeed
from ipu_tf._loops.batch_feed import BatchFeed
from ipu_tf._loops.tensor_feed import TensorFeed
from keras_ipu.resume.data_tracker import current_tracker
from keras_ipu.stock import patches as keras_patches
from keras_ipu.stock.arrays import ArrayBatches, arrays_of, can_prefetch, dataset_of, samples_of, spec_of
from keras_ipu.training.common.data_checks import (
    checked_data,
    checked_steps_per_epoch,
    checked_steps_per_execution,
)
from keras_ipu.training.common.instance_data import take_first_batch
from keras_ipu.training.common.padding import padded_size
from keras_ipu.training.common.partial_batches import sizes_vary
from keras_ipu.training.common.sparse_data import dense_elements

may_be_empty: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_may_be_empty", default=False)
"""Whether the data of this thread's run may have no batch at all; see `IPUTrainer.may_be_empty`."""


class ReplicaBatches(tuple):  # noqa: SLOT001 - a tuple in all but name
    """Batches of one step, one for each replica."""


@dataclasses.dataclass(frozen=True)
class BatchPlaceholder:
    """Placeholder for the batches of one `predict` step, which the device reads when it runs."""

    elements: ElementIterator


class ExecutionLimit:
    """Ends `next` on an epoch's iterator after the batches of one execution, which `predict` takes one by one.

    Keras's `predict` takes as many batches as the model's `steps_per_execution`, or as there are: where an execution is
    shorter, this ends it. `fit` and `evaluate` take whole executions (`ElementIterator.feed`): this does nothing there.

    Args:
        steps: steps of one execution.
        wanted: what the model was compiled with.
    """

    def __init__(self, steps: int, wanted: int) -> None:
        self._most = steps if steps < wanted else None
        self._given = 0

    def take(self) -> None:
        """Counts a step.

        Raises:
            StopIteration: once after each execution's last.
        """
        if self._given == self._most:
            self._given = 0
            raise StopIteration
        self._given += 1


class ElementIterator:
    """Iterator over the batches of an epoch, with the number of steps of an execution.

    Args:
        batches: iterates over them.
        feed: gives them to loops on the device.
        steps: steps of one execution.
        replicas: how many batches a step takes.
        wanted: the model's `steps_per_execution`.
        filled: whether there has to be a batch.
        placeholders: whether to give a `BatchPlaceholder` for each step, not its batches.

    Attributes:
        left: executions that the epoch has left, with the one at hand; None if unknown, or if batches are not to
            be read before Keras asks for them.
        first_batch: what instances compare after the first execution; None if nothing.
        waiting: logs or predictions of executions that ran already, ahead of Keras's loop.
        most: the most steps that the next execution takes.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        feed: BatchFeed,
        steps: int,
        replicas: int,
        wanted: int,
        filled: bool = False,
        placeholders: bool = False,
    ) -> None:
        self._batches = batches
        self._replicas = replicas
        self._wanted = wanted
        self._limit = ExecutionLimit(steps, wanted)
        self._filled = filled
        self._placeholders = placeholders
        self.steps = self.most = steps
        self.left: int | None = None
        self.first_batch: Any = None
        self.waiting: collections.deque[Any] = collections.deque()
        self._feed = feed
        weakref.finalize(self, feed.end).atexit = False

    @property
    def feed(self) -> Any:
        """Returns the feed of the batches for loops on the device.

        Raises:
            ValueError: if there is no batch at all, and there has to be one.
        """
        with self._not_empty():
            self._feed.spec()
        return self._feed

    @property
    def tracked_feed(self) -> BatchFeed:
        """Returns the feed; nothing is read of it."""
        return self._feed

    def limit(self, steps: int) -> None:
        """Sets the steps that the epoch has left for the next execution."""
        self.most = min(self.steps, steps)
        self._limit = ExecutionLimit(self.most, self._wanted)

    def __iter__(self) -> ElementIterator:
        return self

    def __next__(self) -> Any:
        self._limit.take()
        if self._placeholders:
            return BatchPlaceholder(self)
        with self._not_empty():
            step = [next(self._batches)]
        if self._replicas == 1:
            return step[0]
        step += itertools.islice(self._batches, self._replicas - 1)
        if len(step) < self._replicas and graphcore_rules():
            raise StopIteration
        return ReplicaBatches(step)

    @contextlib.contextmanager
    def _not_empty(self) -> Iterator[None]:
        try:
            yield
        except StopIteration:
            if self._filled:
                raise ValueError("Expect x to be a non-empty array or dataset.") from None
            raise
        self._filled = False


class IPUEpochIterator(keras_patches.StockEpochIterator):
    """Keras's epoch iterator for the device, which checks the data first.

    Args:
        replicas: how many replicas the model runs as; the other arguments are those of Keras's.
        predicts: whether it is for `predict`, given a `BatchPlaceholder` for each step where batches may be read
            before Keras asks for them.
        prepared: what a dataset of batches is passed through before the device is fed; None if nothing.
        pads: returns whether arrays of less than a batch may be padded; None if nothing is.

    Raises:
        TypeError, ValueError: for a `steps_per_execution` that is no positive integer.
        ValueError: as `checked_data` says.
    """

    arrays_of: Callable[[Any], ArrayBatches | None] = staticmethod(arrays_of)
    """Finds the arrays behind Keras's data, if its batches are samples of arrays."""

    _graphcore_rules: bool
    steps_per_execution: int
    steps_per_epoch: int | None
    _num_batches: int | None
    _current_iterator: Any
    _steps_seen: int

    def __init__(
        self,
        *args: Any,
        replicas: int = 1,
        predicts: bool = False,
        prepared: Callable[[Any], Any] | None = None,
        pads: Callable[[], bool] | None = None,
        **kwargs: Any,
    ) -> None:
        self._prepared = prepared
        self._pads = pads
        self._graphcore_rules = graphcore_rules()
        checked_data(kwargs.get("x"), kwargs.get("steps_per_epoch"), self._graphcore_rules)
        super().__init__(*args, **kwargs)
        self._replicas = replicas
        self._predicts = predicts
        self._begun = False
        adapter = self.data_adapter
        if self._graphcore_rules:
            steps = checked_steps_per_epoch(adapter, self.steps_per_epoch, replicas)
        else:
            steps = self._per_replica(adapter.num_batches)
            if self.steps_per_epoch is not None:
                steps = self._wanted_per_replica(self.steps_per_epoch, adapter.num_batches)
        if self.steps_per_epoch is not None:
            self.steps_per_epoch = steps
        self._num_batches = self._per_replica(self._num_batches)
        self._wanted = checked_count("steps_per_execution", self.steps_per_execution)
        self.steps_per_execution = self._wanted
        if self._graphcore_rules:
            self.steps_per_execution = checked_steps_per_execution(steps, self._wanted, replicas)
        tracker = current_tracker.get()
        self._tracker = None if tracker is None else tracker.claim(self)
        self._first_batch = take_first_batch(self, eagerly=False)

    opens_when_read = False
    """Whether an iterator over a dataset is opened when its first batch is read."""

    def feeds_before(self, iterators: int) -> Iterator[BatchFeed]:
        """Opens iterators over a dataset that an earlier process opened: each changes the order of the next.

        Args:
            iterators: how many; none are opened over other data.

        Yields:
            For each a feed of its batches.
        """
        dataset = dataset_of(self.data_adapter)
        for _ in range(iterators if dataset is not None else 0):
            given = dataset if self._prepared is None else self._prepared(dataset)
            yield TensorFeed(iter(dense_elements(given)))

    @property
    def steps_seen(self) -> int:
        """Returns the steps that Keras has taken from the iterator over the data that is open."""
        return self._steps_seen

    @property
    def steps_of_epoch(self) -> int | None:
        """Returns the steps of an epoch; None as long as they are unknown.

        Where no more than the data's end tells them, Keras counts the execution that found it too.
        """
        found = self.steps_per_epoch is None and self.data_adapter.num_batches is None
        count: int | None = self.num_batches
        return count if count is None or not found else count - self.steps_per_execution

    @property
    def goes_on(self) -> bool:
        """Returns whether the next epoch goes on in the iterator over the data that is open."""
        return self.steps_per_epoch is not None and self._current_iterator is not None

    @property
    def replicas(self) -> int:
        """Returns how many batches a step takes."""
        return self._replicas

    @property
    def batch_spec(self) -> Any:
        """Returns shape and dtype of each array of a batch, for Keras on TensorFlow."""
        return spec_of(self.data_adapter, self._arrays)

    def check_order(self) -> None:
        """Checks that arrays are shuffled by seeded random numbers.

        Raises:
            CheckpointError: if they are not.
        """
        if self._arrays is None or self._arrays.order is None:
            return
        one, other = ([block.numpy().tobytes() for block in self._arrays.order] for _ in range(2))
        if one != other:
            raise CheckpointError(
                "A run on shuffled arrays is resumed exactly if the order is seeded. Received: no seed. Call "
                "`keras.utils.set_random_seed(...)` at the beginning of the program, or pass `shuffle=False`."
            )

    def know_length(self, steps: int | None) -> None:
        """Sets the steps of an epoch where Keras has not found out yet: an earlier process has."""
        if self._num_batches is None and self.steps_per_epoch is None:
            self._num_batches = steps

    @property
    def data_adapter(self) -> Any:
        """Keras's data adapter. For arrays its dataset has indices of samples, not samples."""
        return self._adapter

    @data_adapter.setter
    def data_adapter(self, adapter: Any) -> None:
        arrays = self.arrays_of(adapter) if self._prepared is None else None
        if arrays is not None:
            arrays = dataclasses.replace(arrays, batch=self.padded_size(adapter) or arrays.batch)
            adapter.get_tf_dataset = arrays.dataset
        self._adapter, self._arrays = adapter, arrays

    def padded_size(self, adapter: Any) -> int | None:
        """Returns the rows that a batch of arrays is padded to; None for other data, or where nothing is padded."""
        sizes = None if self._pads is None else samples_of(adapter)
        if self._pads is None or sizes is None or sizes[0] == 0:
            return None
        rows = padded_size(*sizes)
        return rows if rows == min(sizes) or self._pads() else None

    def reset(self) -> None:
        """Restarts at the first batch."""
        super().reset()
        self._num_batches = self._per_replica(self._num_batches)

    def _enumerate_iterator(self) -> Iterator[Any]:
        done = None
        for begin, end, iterator in super()._enumerate_iterator():
            if done is None:
                done, before = (0, 0) if self._tracker is None else self._tracker.steps_to_skip()
                self._steps_seen += before
            if begin < done:
                continue
            iterator.left = self._left(begin)
            # One replica takes whole executions, as stock Keras does. Several would take others than one.
            if self._replicas > 1 and self.steps_per_epoch is not None:
                iterator.limit(self.steps_per_epoch - begin)
            yield begin, end, iterator

    def _left(self, begin: int) -> int | None:
        """Returns the executions left in the epoch from this step on; None if user code yields the batches."""
        if not can_prefetch(self.data_adapter):
            return None
        ends = [] if self.steps_per_epoch is None else [self.steps_per_epoch - begin]
        if self._num_batches is not None:
            ends.append(self._num_batches - self._steps_seen + self.steps_per_execution)
        return -(-min(ends) // self.steps_per_execution) if ends else None

    def _per_replica(self, batches: int | None) -> int | None:
        if batches is None or self._replicas == 1:
            return batches
        return batches // self._replicas if self._graphcore_rules else -(-batches // self._replicas)

    def _wanted_per_replica(self, wanted: int, batches: int | None) -> int:
        """Returns the steps of an epoch for each replica; of batches that go on, no step takes fewer than replicas."""
        ends = batches is not None and batches <= wanted
        return -(-wanted // self._replicas) if ends else max(1, wanted // self._replicas)

    def _get_iterator(self) -> Any:
        counts = (self.steps_per_execution, self._replicas, self._wanted)
        placeholders = self._predicts and can_prefetch(self.data_adapter)
        dataset = super()._get_iterator()
        if self._prepared is not None:
            dataset = self._prepared(dataset)
        epoch = _Epoch(dataset, self._arrays, *counts, self.begin_pass(), placeholders)
        return epoch if self._tracker is None and self._first_batch is None else self._tracked(epoch)

    def _tracked(self, epoch: Iterable[ElementIterator]) -> ElementIterator:
        """Returns an epoch's iterator, moved to where a resumed run goes on; instances compare its first batch."""
        elements = iter(epoch)
        assert isinstance(elements, ElementIterator)
        if self._tracker is not None:
            self._tracker.opened(elements)
        first, self._first_batch = self._first_batch, None
        if first is not None:
            first.watch(elements)
        return elements

    def begin_pass(self) -> bool:
        """Begins a pass over the data; returns whether there has to be a batch: in the first pass, by what runs."""
        first, self._begun = not self._begun, True
        return first and not may_be_empty.get()


class _Epoch:
    """Iterator over a dataset, or over samples of arrays, from the start."""

    def __init__(self, dataset: Any, arrays: ArrayBatches | None, *counts: Any) -> None:
        self._dataset = dataset
        self._arrays = arrays
        self._counts = counts

    def __iter__(self) -> ElementIterator:
        if self._arrays is None:
            iterator = iter(dense_elements(self._dataset))
            return ElementIterator(iterator, TensorFeed(iterator, warn_cast, sizes_vary()), *self._counts)
        feed = ArrayFeed(self._arrays.arrays, self._arrays.indices(), self._arrays.batch, warn_cast, sizes_vary())
        return ElementIterator(feed, feed, *self._counts)
