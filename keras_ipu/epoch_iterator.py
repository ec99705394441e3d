"""An epoch of an IPU model: which batches go into which execution.

With R replicas a step takes R batches: replica `r` of step `i` gets batch `R * i + r`. Steps are counted for each
replica.
"""

from __future__ import annotations

from typing import Any

from ipu_tf.tensor_feed import Feed
from keras_ipu import keras_private
from keras_ipu.data_rules import checked_data, checked_steps, checked_steps_per_execution, tell_cast


class ReplicaBatches(tuple):  # noqa: SLOT001 - a tuple in all but name
    """The batches of one step, one for each replica."""


class Ration:
    """Holds `predict` to the steps of an execution that is shorter than the model's `steps_per_execution`.

    Keras takes as many batches from the iterator as the model was compiled with, or as there are.

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
    """The batches of an epoch, and how many steps an execution runs.

    Args:
        iterator: TensorFlow's iterator over the batches.
        steps: steps of one execution.
        replicas: how many batches a step takes.
        wanted: the model's `steps_per_execution`.
    """

    def __init__(self, iterator: Any, steps: int, replicas: int, wanted: int) -> None:
        self._iterator = iterator
        self._replicas = replicas
        self._ration = Ration(steps, wanted)
        self.steps = steps
        self.feed = Feed(iterator, on_cast=tell_cast)

    def __iter__(self) -> ElementIterator:
        return self

    def __next__(self) -> Any:
        self._ration.take()
        if self._replicas == 1:
            return next(self._iterator)
        return ReplicaBatches([next(self._iterator) for _ in range(self._replicas)])


class IPUEpochIterator(keras_private.StockEpochIterator):
    """Keras's epoch iterator, after the data was checked against what the device can be fed.

    Args:
        replicas: how many replicas the model runs as; the other arguments are those of Keras's.

    Raises:
        ValueError: as `data_rules` says.
    """

    steps_per_execution: int
    steps_per_epoch: int | None
    _num_batches: int | None

    def __init__(self, *args: Any, replicas: int = 1, **kwargs: Any) -> None:
        checked_data(kwargs.get("x"), kwargs.get("steps_per_epoch"))
        super().__init__(*args, **kwargs)
        self._replicas = replicas
        adapter = self.data_adapter
        steps = checked_steps(adapter, self.steps_per_epoch, replicas)
        if self.steps_per_epoch is not None:
            self.steps_per_epoch = steps
        self._num_batches = self._per_replica(self._num_batches)
        self._wanted = int(self.steps_per_execution)
        self.steps_per_execution = checked_steps_per_execution(steps, int(self.steps_per_execution), replicas)

    def reset(self) -> None:
        """Starts over, at the first batch."""
        super().reset()
        self._num_batches = self._per_replica(self._num_batches)

    def _per_replica(self, batches: int | None) -> int | None:
        return batches if batches is None or self._replicas == 1 else batches // self._replicas

    def _get_iterator(self) -> Any:
        return _Epoch(super()._get_iterator(), self.steps_per_execution, self._replicas, self._wanted)


class _Epoch:
    """Iterates over a dataset from its start."""

    def __init__(self, dataset: Any, *counts: int) -> None:
        self._dataset = dataset
        self._counts = counts

    def __iter__(self) -> ElementIterator:
        return ElementIterator(iter(self._dataset), *self._counts)
