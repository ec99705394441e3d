"""An epoch of an IPU model: which batches go into which execution."""

from __future__ import annotations

from typing import Any

from ipu_tf.step_loop import Feed
from keras_ipu import keras_private
from keras_ipu.data_rules import checked_data, checked_steps_per_execution, tell_cast


class ElementIterator:
    """The batches of an epoch, and how many steps an execution runs.

    Args:
        iterator: TensorFlow's iterator over the batches.
        steps: steps of one execution.
    """

    def __init__(self, iterator: Any, steps: int) -> None:
        self._iterator = iterator
        self.steps = steps
        self.feed = Feed(iterator, on_cast=tell_cast)

    def __iter__(self) -> ElementIterator:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)


class IPUEpochIterator(keras_private.StockEpochIterator):
    """Keras's epoch iterator, after the data was checked against what the device can be fed.

    Raises:
        ValueError: as `data_rules` says.
    """

    steps_per_execution: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        checked_data(kwargs.get("x"))
        super().__init__(*args, **kwargs)
        self.steps_per_execution = checked_steps_per_execution(
            self.data_adapter, self.steps_per_epoch, int(self.steps_per_execution)
        )

    def _get_iterator(self) -> Any:
        return _Epoch(super()._get_iterator(), self.steps_per_execution)


class _Epoch:
    """Iterates over a dataset from its start."""

    def __init__(self, dataset: Any, steps: int) -> None:
        self._dataset = dataset
        self._steps = steps

    def __iter__(self) -> ElementIterator:
        return ElementIterator(iter(self._dataset), self._steps)
