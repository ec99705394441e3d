"""Train, test and predict functions of an IPU model: one call is one execution on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf.step_loop import Feed, StepLoop
from keras_ipu import keras_private
from keras_ipu.data_rules import tell_cast
from keras_ipu.epoch_iterator import ElementIterator


class StepFunction:
    """Runs a model's train or test step in a loop on the device.

    Args:
        model: the model.
        step: its `train_step` or `test_step`.
    """

    def __init__(self, model: Any, step: Callable[[Any], Any]) -> None:
        self._loops = _Loops(model, step)
        self._model = model

    def __call__(self, iterator: Any) -> Any:
        """Runs one execution.

        Args:
            iterator: an epoch's `ElementIterator`, or any Python iterator over batches, of which all are used up to
                `steps_per_execution`.

        Returns:
            The logs of the last step.

        Raises:
            StopIteration: if there is no batch left.
        """
        steps = self._model.steps_per_execution
        feed = Feed(iterator, on_cast=tell_cast)
        if isinstance(iterator, ElementIterator):
            steps, feed = iterator.steps, iterator.feed
        ran = self._loops.loop_for(feed).run(feed, steps)
        if ran.steps == 0:
            raise StopIteration
        return ran.rows


class PredictFunction:
    """Runs a model's predict step in a loop on the device.

    Args:
        model: the model.
    """

    def __init__(self, model: Any) -> None:
        self._loops = _Loops(model, model.predict_step, all_rows=True)

    def __call__(self, batches: list[Any]) -> Any:
        """The predictions for some batches, joined along the batch dimension."""
        feed = Feed(iter(batches), on_cast=tell_cast)
        rows = self._loops.loop_for(feed).run(feed, len(batches)).rows
        return tf.nest.map_structure(_joined, rows)


class _Loops:
    """A step's loops on the device, one for each shape of batch it has seen."""

    def __init__(self, model: Any, step: Callable[[Any], Any], all_rows: bool = False) -> None:
        self._strategy = keras_private.strategy_of(model)
        self._step = step
        self._all_rows = all_rows
        self._loops: dict[Any, StepLoop] = {}

    def loop_for(self, feed: Feed) -> StepLoop:
        """The loop for the batches that a feed gives."""
        spec = feed.spec()
        key = str(spec)
        if key not in self._loops:
            self._loops[key] = StepLoop(self._traced, spec, self._strategy.device_ordinal, self._all_rows)
        return self._loops[key]

    def _traced(self, batch: Any) -> Any:
        with self._strategy.replica_context():
            return self._step(batch)


def _joined(rows: tf.Tensor) -> tf.Tensor:
    """`[steps, batch, ...]` as `[steps * batch, ...]`; a scalar a step stays one."""
    return rows if rows.shape.rank == 1 else tf.reshape(rows, [-1, *rows.shape[2:]])
