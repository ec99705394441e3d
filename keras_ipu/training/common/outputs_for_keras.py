"""Turns the outputs of steps into what Keras takes: reduces the logs of replicas, joins predictions."""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from keras_ipu.options.model_state import options_of
from keras_ipu.options.options import ReplicatedMetricReductionMethod as Method
from keras_ipu.training.common.partial_batches import ExecutedSteps


@dataclasses.dataclass(frozen=True)
class ArrayFunctions:
    """Functions on the arrays that a back end's steps return. Reductions are over the first dimension.

    Attributes:
        map_structure: calls a function for each array of a structure.
        unstack: the values along the first dimension, as a list.
        reduce_sum: their sum.
        reduce_mean: their mean; of integers as float32.
        reshape: the array in another shape.
        concatenate: several arrays as one, along their first dimension.
        stack: several arrays as one, along a new first dimension.
        stacks_scalars: whether Keras itself stacks predictions without dimensions, of several executions of one step.
    """

    map_structure: Callable[..., Any]
    unstack: Callable[[Any], list[Any]]
    reduce_sum: Callable[[Any], Any]
    reduce_mean: Callable[[Any], Any]
    reshape: Callable[[Any, Sequence[int]], Any]
    concatenate: Callable[..., Any]
    stack: Callable[..., Any]
    stacks_scalars: bool


single_batch: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_single_batch", default=False)
"""Whether this thread runs a method that takes one batch, such as `predict_on_batch`."""


class OutputsForKeras:
    """Makes the outputs of a model's executions what its train, test or predict function returns to Keras.

    Args:
        model: the model.
        predicts: whether its steps return predictions, not logs.
        arrays: functions on the arrays that steps return; also an attribute.
    """

    def __init__(self, model: Any, predicts: bool, arrays: ArrayFunctions) -> None:
        self._model = model
        self._predicts = predicts
        self.arrays = arrays

    def of_execution(self, parts: Sequence[ExecutedSteps], replicas: int, averaged: int = 1) -> Any:
        """Returns the last logs of an execution, or all its predictions joined.

        Args:
            parts: outputs of the steps, in order.
            replicas: how many replicas ran.
            averaged: over how many of the last steps logs are averaged.
        """
        if self._predicts:
            joined = [each for part in parts for each in self._predictions(part, replicas)]
            return joined[0] if len(joined) == 1 else self.arrays.map_structure(self.arrays.concatenate, *joined)
        last = parts[-1]
        if not last.remainder:
            return self._logs(last.outputs, replicas, averaged)
        if averaged == 1:
            return self._logs(last.outputs[-1], replicas)
        stacked = self.arrays.map_structure(self.arrays.stack, *last.outputs)
        return self._logs(stacked, replicas, len(last.outputs))

    def of_each_step(self, parts: Sequence[ExecutedSteps], replicas: int) -> list[Any]:
        """Returns the logs or predictions of each step; a remainder counts as one step."""
        outputs: list[Any] = []
        for part in parts:
            if part.remainder:
                outputs.append(self.of_execution([part], replicas))
            else:
                outputs += [self._of_step(each, replicas) for each in part.outputs]
        return outputs

    def _of_step(self, outputs: Any, replicas: int) -> Any:
        if self._predicts:
            return join_predictions(outputs, int(replicas > 1), self.arrays, self._keeps_scalars(replicas))
        return self._logs(outputs, replicas)

    def _predictions(self, part: ExecutedSteps, replicas: int) -> list[Any]:
        """Returns the predictions of consecutive steps, joined; of a remainder, those of each batch."""
        keep = self._keeps_scalars(replicas)
        if not part.remainder:
            return [join_predictions(part.outputs, 1 + int(replicas > 1), self.arrays, keep)]
        one = part.outputs  # which every replica has computed
        if replicas > 1:
            one = self.arrays.map_structure(lambda values: values[0], one)
        return [join_predictions(each, 0, self.arrays, keep) for each in one]

    def _keeps_scalars(self, replicas: int) -> bool:
        """Returns whether outputs without dimensions stay so: where each execution returns those of one batch."""
        alone = replicas == 1 and self._model.steps_per_execution == 1 and self.arrays.stacks_scalars
        return alone or single_batch.get()

    def _logs(self, outputs: Any, replicas: int, averaged: int = 1) -> Any:
        method = options_of(self._model).log_reduction
        return reduce_replica_logs(outputs, replicas, method, self.arrays, averaged)


def reduce_replica_logs(outputs: Any, replicas: int, method: Method, arrays: ArrayFunctions, averaged: int = 1) -> Any:
    """Reduces the logs of replicas to the logs of an execution.

    Args:
        outputs: a structure of arrays: of the last step, or of all steps with a leading dimension where some are
            averaged; with several replicas each has a dimension of replicas.
        replicas: how many there are.
        method: how the values of replicas are combined.
        arrays: functions on the arrays.
        averaged: over how many of the last steps; 1 for the last step alone.

    Returns:
        The same structure; with `LIST` and several replicas a list of a value for each replica in place of an array.

    Example:
        >>> import numpy as np
        >>> from keras_ipu.training.jax.array_functions import ARRAYS
        >>> reduce_replica_logs({"loss": np.float32([1.0, 3.0])}, 2, Method.MEAN, ARRAYS)["loss"].item()
        2.0
    """
    if averaged > 1:
        outputs = arrays.map_structure(lambda values: arrays.reduce_mean(values[-averaged:]), outputs)
    if replicas == 1:
        return outputs
    combine = {Method.LIST: arrays.unstack, Method.SUM: arrays.reduce_sum, Method.MEAN: arrays.reduce_mean}
    return arrays.map_structure(combine.get(method, lambda values: values[-1]), outputs)


def join_predictions(outputs: Any, leading: int, arrays: ArrayFunctions, keep_scalars: bool = False) -> Any:
    """Joins the predictions of steps and replicas to one dimension of samples; scalars become one value a step.

    Args:
        outputs: a structure of arrays `[(steps,) (replicas,) batch, ...]`.
        leading: how many of the dimensions of steps and replicas there are.
        arrays: functions on the arrays.
        keep_scalars: whether scalars stay scalars: of one step on one replica.

    Example:
        >>> import numpy as np
        >>> from keras_ipu.training.jax.array_functions import ARRAYS
        >>> join_predictions(np.zeros((4, 2, 8, 10)), 2, ARRAYS).shape
        (64, 10)
    """

    def joined(values: Any) -> Any:
        shape = tuple(values.shape)
        if keep_scalars and len(shape) == leading:
            return arrays.reshape(values, ())
        return values if shape and leading == 0 else arrays.reshape(values, (-1, *shape[leading + 1 :]))

    return arrays.map_structure(joined, outputs)
