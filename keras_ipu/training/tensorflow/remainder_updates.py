"""Weight updates of a remainder: its batches' gradients are added up, and applied in the step of the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_ipu.training.common.update_sums import UpdateSums
from keras_ipu.training.tensorflow.put_off_updates import PutOffUpdates

Apply = Callable[..., Any]
"""Applies an optimizer's update to gradients and variables."""
Update = Callable[[Any, Apply, list[Any], Any], None]
"""Gets an optimizer, its update, gradients and variables; None for those that the optimizer was built with."""


class RemainderUpdates:
    """Updates of the steps of a remainder, as they are traced one after the other.

    Args:
        model: its name, for errors.
        sums: of the gradients of its batches.
        complete: makes an update, from the gradients of all batches.
    """

    def __init__(self, model: str, sums: UpdateSums, complete: Update) -> None:
        self._model = model
        self._sums = sums
        self._complete = complete
        self._graph = tf.compat.v1.get_default_graph()

    def of_batch(self, step: Callable[[], Any]) -> Any:
        """Returns what the step of the next batch returns."""
        self._put_off = PutOffUpdates(self._model, self._sums.batches)
        self._sums.start_batch()
        outputs = step()
        self._sums.finish_batch()
        return outputs

    def update(self, optimizer: Any, stock: Apply, gradients: list[Any], variables: Any) -> None:
        """Adds the gradients of a batch; updates weights by those of all batches.

        Raises:
            EmulationError: if the update of several batches would not be that of one.
        """
        if self._sums.batches > 1 and tf.compat.v1.get_default_graph() is not self._graph:
            raise self._sums.inner_function(optimizer)
        variables = None if variables is None else list(variables)
        self._put_off.check(optimizer, gradients)
        complete = self._sums.add(optimizer, gradients, variables or ())
        if complete is not None:
            self._complete(optimizer, stock, complete, variables)
        self._put_off.add(optimizer, variables)

    def unseen_update(self, optimizer: Any, *call: Any) -> None:
        """Updates weights where only a part of a call is left.

        Raises:
            EmulationError: if there are several batches.
        """
        if self._sums.batches > 1:
            raise self._sums.inner_function(optimizer)
        self.update(optimizer, *call)
