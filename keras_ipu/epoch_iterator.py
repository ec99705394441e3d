"""An epoch of an IPU model: which batches go into which execution.

With R replicas a step takes R batches: replica `r` of step `i` gets batch `R * i + r`. Steps are counted for each
replica.
"""

from __future__ import annotations

from typing import Any

from ipu_tf.step_loop import Feed
from keras_ipu import keras_private
from keras_ipu.data_rules import checked_data, checked_steps, checked_steps_per_execution, tell_cast


class ReplicaBatches(tuple):  # noqa: SLOT001 - a tuple in all but name
    """The batches of one step, one for each replica."""


class ElementIterator:
    """The batches of an epoch, and how many steps an execution runs.

    Args:
        iterator: TensorFlow's iterator over the batches.
        steps: steps of one execution.
        replicas: how many batches a step takes.
    """

    def __init__(self, iterator: Any, steps: int, replicas: int) -> None:
        self._iterator = iterator
        self._replicas = replicas
        self.steps = steps
        self.feed = Feed(iterator, on_cast=tell_cast)

    def __iter__(self) -> ElementIterator:
        return self

    def __next__(self) -> Any:
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
        self.steps_per_execution = checked_steps_per_execution(steps, int(self.steps_per_execution), replicas)

    def reset(self) -> None:
        """Starts over, at the first batch."""
        super().reset()
        self._num_batches = self._per_replica(self._num_batches)

    def _per_replica(self, batches: int | None) -> int | None:
        return batches if batches is None or self._replicas == 1 else batches // self._replicas

    def _get_iterator(self) -> Any:
        return _Epoch(super()._get_iterator(), self.steps_per_execution, self._replicas)


class _Epoch:
    """Iterates over a dataset from its start."""

    def __init__(self, dataset: Any, steps: int, replicas: int) -> None:
        self._dataset = dataset
        self._steps = steps
        self._replicas = replicas

    def __iter__(self) -> ElementIterator:
        return ElementIterator(iter(self._dataset), self._steps, self._replicas)
