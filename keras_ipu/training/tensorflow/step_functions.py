"""Train, test and predict functions of IPU models on Keras's TensorFlow back end.

Keras calls the train and test function with an epoch's iterator, the predict function with batches that it has read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._loops.tensor_feed import TensorFeed
from ipu_tf._loops.tensorflow_step import TensorFlowStep
from ipu_tf._training.weight_update import accumulate_and_apply, slots_created_whole
from keras_ipu.pipeline.graph import build_graph
from keras_ipu.pipeline.run_checks import is_pipelined
from keras_ipu.pipeline.staged_call import staged_call
from keras_ipu.stock import models as keras_models
from keras_ipu.training.common.data_checks import warn_cast
from keras_ipu.training.common.epoch_iterator import BatchPlaceholder, ElementIterator, ReplicaBatches
from keras_ipu.training.common.partial_batches import gradient_weights, sizes_vary
from keras_ipu.training.common.recurrent_weights import hoist_weight_reads
from keras_ipu.training.common.step_function import PREDICT, TRAIN, ExecutionBatches, StepFunction, StepKind
from keras_ipu.training.common.step_outputs import TENSORS
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.tensorflow.captured_gradients import capturing_step
from keras_ipu.training.tensorflow.summed_rows import sum_repeated_rows


class TensorFlowStepFunction(StepFunction):
    """Train or test function: runs one execution, or several ahead of Keras's loop.

    Args:
        model: the model.
        kind: which of its steps.
    """

    def __init__(self, model: Any, kind: StepKind) -> None:
        super().__init__(model, kind, TENSORS)

    def __call__(self, iterator: Any) -> Any:
        """Runs the next execution; if its steps ran ahead already, only returns their logs.

        Args:
            iterator: an epoch's `ElementIterator`, or any Python iterator over batches, of which all are used up to
                `steps_per_execution`.

        Returns:
            The logs of the last step.

        Raises:
            StopIteration: if there is no batch left.
            RuntimeError: if gradient accumulation does not divide the steps of the execution.
            EmulationError: if there is not a batch for each replica.
        """
        if isinstance(iterator, ElementIterator) and iterator.waiting:
            return iterator.waiting.popleft()
        batches = self._batches(iterator)
        return self._finish(self._execute(batches), batches)

    def _feed(self, batches: Iterator[Any]) -> TensorFeed:
        return TensorFeed(batches, warn_cast, sizes_vary())

    def _device_step(self, batch_spec: Any, state: Any, split: StepSplit) -> TensorFlowStep:
        model, strategy = self._model, keras_models.strategy_of(self._model)
        if is_pipelined(model):
            build_graph(model, _inputs_of(batch_spec))

        def traced(batch: Any) -> Any:
            staged = staged_call(model, split.accumulation_count, self._kind.training)
            with strategy.replica_context(), staged, hoist_weight_reads():
                return self._keras_step(batch, split)

        return TensorFlowStep(traced, batch_spec)

    def _remainder_step(self, batches_spec: Any, state: Any, split: StepSplit) -> TensorFlowStep:
        strategy = keras_models.strategy_of(self._model)

        def traced(batches: Any) -> Any:
            with strategy.replica_context(), hoist_weight_reads():
                return self._keras_steps(batches, split)

        return TensorFlowStep(traced, batches_spec)

    def _keras_steps(self, batches: Any, split: StepSplit) -> Any:
        """Calls the model's step on one batch after the other; together they make one weight update."""
        model = self._model
        if self._kind is not TRAIN:
            return tuple(map(getattr(model, f"{self._kind.name}_step"), batches))
        step, optimizer = capturing_step(model), model.optimizer
        if optimizer is None:
            return tuple(map(step, batches))
        combined = _CombinedGradients(optimizer, split, gradient_weights(batches, split))
        with keras_models.applying(optimizer, combined.apply):
            return tuple(map(step, batches))

    def _keras_step(self, batch: Any, split: StepSplit) -> Any:
        """Calls the model's step; its optimizer gets the gradients of all micro-batches and replicas at once."""
        model = self._model
        if self._kind is not TRAIN:
            return getattr(model, f"{self._kind.name}_step")(batch)
        step, optimizer = capturing_step(model), model.optimizer
        if optimizer is None:
            return step(batch)
        with keras_models.applying(optimizer, lambda *call: _accumulate_and_apply(optimizer, split, *call)):
            return step(batch)


class TensorFlowPredictFunction(TensorFlowStepFunction):
    """Predict function: runs one execution on batches that Keras has read, or that the device reads as it runs.

    Args:
        model: the model.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model, PREDICT)

    def __call__(self, batches: list[Any]) -> Any:
        """Returns the predictions for some batches, joined along the batch dimension in the order of the batches.

        Args:
            batches: for each step one batch, with several replicas a list with one for each replica; or a
                `BatchPlaceholder`. A single one of these may make the device run further steps ahead: then
                the next calls only return the predictions of theirs.

        Raises:
            StopIteration: if there is no batch left.
            EmulationError: if there is not a batch for each replica.
        """
        if isinstance(batches[0], BatchPlaceholder):
            return super().__call__(batches[0].elements)
        execution = self._read_batches(batches)
        return self._finish(self._execute(execution), execution)

    def _read_batches(self, steps: list[Any]) -> ExecutionBatches:
        """Returns batches that Keras has read, one for each step or a `ReplicaBatches` for each."""
        for_replicas = all(isinstance(step, ReplicaBatches) for step in steps)
        batches = [batch for step in steps for batch in step] if for_replicas else steps
        feed = self._feed(iter(batches))
        return ExecutionBatches(len(steps), feed, for_replicas=for_replicas, ahead=False)


def _inputs_of(batch: Any) -> Any:
    """Returns the input specs of a model for a batch, with any batch size."""
    inputs, *_ = keras.utils.unpack_x_y_sample_weight(batch)
    return tf.nest.map_structure(lambda spec: tf.TensorSpec([None, *spec.shape[1:]], spec.dtype), inputs)


class _CombinedGradients:
    """Applies the weighted sum of the gradients of several train steps in the last of them.

    Args:
        optimizer: of the model.
        split: of full steps.
        weights: the factor of each step's gradients.
    """

    def __init__(self, optimizer: Any, split: StepSplit, weights: list[float]) -> None:
        self._optimizer = optimizer
        self._split = dataclasses.replace(split, accumulation_count=1)
        self._weights = weights
        self._sums: list[Any] = []
        self._steps = 0

    def apply(self, stock: Callable[..., Any], gradients: list[Any], variables: Any) -> None:
        """Adds the gradients of a step; after the last, updates weights."""
        if self._weights != [1.0]:
            weight = self._weights[self._steps]
            gradients = [
                None if each is None else tf.convert_to_tensor(each) * tf.cast(weight, each.dtype) for each in gradients
            ]
            pairs = zip(self._sums or [None] * len(gradients), gradients, strict=True)
            gradients = [new if old is None else old if new is None else old + new for old, new in pairs]
        self._sums = gradients
        self._steps += 1
        if self._steps >= len(self._weights):
            _accumulate_and_apply(self._optimizer, self._split, stock, gradients, variables)


def _accumulate_and_apply(
    optimizer: Any, split: StepSplit, stock: Callable[..., Any], gradients: list[Any], variables: Any
) -> None:
    variables = None if variables is None else list(variables)
    gradients = sum_repeated_rows(optimizer, gradients, variables)
    if (
        variables is not None
        and not optimizer.built
        and not (split.is_trivial and keras_models.computes_slots(optimizer))
    ):
        with slots_created_whole(), keras_models.scope_of_optimizer(optimizer):
            optimizer.build(variables)
    if split.is_trivial:
        stock(gradients, variables)
        return
    accumulate_and_apply(
        gradients,
        lambda complete: stock(complete, variables),
        split.accumulation_count,
        split.replicas,
        split.reduction,
        lambda position: split.accumulator_dtype(variables, position),
    )
