"""Train, test and predict functions of IPU models on Keras's TensorFlow back end.

Keras calls the train and test function with an epoch's iterator, the predict function with batches that it has read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._data.narrow_dtypes import warn_cast
from ipu_tf._loops.tensor_feed import TensorFeed
from ipu_tf._loops.tensorflow_step import TensorFlowStep, flush_variables
from ipu_tf.ops.all_to_all_op import all_gather
from ipu_tf.ops.replication_ops import replication_index
from keras_ipu.pipeline.graph import build_graph
from keras_ipu.pipeline.run_checks import is_pipelined
from keras_ipu.pipeline.stage_discovery import unknown_stages_refused
from keras_ipu.pipeline.staged_call import staged_call
from keras_ipu.stock import models as keras_models
from keras_ipu.stock.compiled_metrics import batches_counted_alike
from keras_ipu.training.common.epoch_iterator import BatchPlaceholder, ElementIterator, ReplicaBatches
from keras_ipu.training.common.partial_batches import sizes_vary
from keras_ipu.training.common.replica_metrics import metrics_in_remainder, metrics_in_step
from keras_ipu.training.common.replica_seeds import seeds_of_replicas
from keras_ipu.training.common.step_function import PREDICT, ExecutionBatches, StepFunction, StepKind
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.tensorflow.first_trace import metrics_created
from keras_ipu.training.tensorflow.host_layers import after_host_layers, host_layers
from keras_ipu.training.tensorflow.model_steps import model_step, remainder_step
from keras_ipu.training.tensorflow.recurrent_weights import hoist_weight_reads
from keras_ipu.training.tensorflow.tensor_functions import TENSORS


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
        return self._outputs_of(self._batches(iterator))

    def _outputs_of(self, batches: ExecutionBatches) -> Any:
        """Runs the next execution, and writes variables back if its batches are not an epoch's.

        A program that calls the function itself has no run that writes them back at its end.
        """
        try:
            return self._finish(self._execute(batches), batches)
        finally:
            if batches.epoch is None:
                flush_variables()

    def _feed(self, batches: Iterator[Any]) -> TensorFeed:
        return TensorFeed(batches, warn_cast, sizes_vary())

    def _prepared(self, batches: Iterator[Any]) -> Iterator[Any]:
        layers = host_layers(self._model)
        return batches if layers is None else map(layers.prepared, batches)

    def _device_step(self, batch_spec: Any, state: Any, split: StepSplit) -> TensorFlowStep:
        model, strategy = self._model, keras_models.strategy_of(self._model)
        if is_pipelined(model):
            build_graph(model, _inputs_of(batch_spec))

        step = model_step(model, self._kind, split)

        def traced(batch: Any) -> Any:
            staged = staged_call(model, split.accumulation_count, self._kind.training)
            counted = _counted(model, metrics_in_step(model, split, all_gather))
            layers, wrapped = after_host_layers(model, batch), hoist_weight_reads()
            seeds = seeds_of_replicas(split, replication_index)
            with (
                unknown_stages_refused(model),
                strategy.replica_context(),
                staged,
                wrapped,
                metrics_created(model),
                counted,
                seeds,
                layers as (given,),
            ):
                return step(given)

        return TensorFlowStep(traced, batch_spec, lambda: keras_models.optimizer_state(model))

    def _remainder_step(self, batches_spec: Any, state: Any, split: StepSplit) -> TensorFlowStep:
        model, strategy = self._model, keras_models.strategy_of(self._model)

        steps = remainder_step(model, self._kind, split)

        def traced(batches: Any) -> Any:
            counted = _counted(model, metrics_in_remainder(model, split))
            layers = after_host_layers(model, *batches)
            created, stages = metrics_created(model), unknown_stages_refused(model)
            with stages, strategy.replica_context(), hoist_weight_reads(), created, counted, layers as given:
                return steps(given)

        return TensorFlowStep(traced, batches_spec, lambda: keras_models.optimizer_state(model))


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
        return self._outputs_of(self._read_batches(batches))

    def _read_batches(self, steps: list[Any]) -> ExecutionBatches:
        """Returns batches that Keras has read, one for each step or a `ReplicaBatches` for each."""
        for_replicas = all(isinstance(step, ReplicaBatches) for step in steps)
        batches = [batch for step in steps for batch in step] if for_replicas else steps
        feed = self._feed(self._prepared(iter(batches)))
        return ExecutionBatches(len(steps), feed, for_replicas=for_replicas, ahead=False)


@contextlib.contextmanager
def _counted(model: Any, updates: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """Context in which metrics count as stock Keras on TensorFlow does, and once for all replicas.

    Args:
        model: the model.
        updates: context of the split, which takes whatever updates of metrics it finds as stock ones.
    """
    with batches_counted_alike(model), updates:
        yield


def _inputs_of(batch: Any) -> Any:
    """Returns the input specs of a model for a batch, with any batch size."""
    inputs, *_ = keras.utils.unpack_x_y_sample_weight(batch)
    return tf.nest.map_structure(lambda spec: tf.TensorSpec([None, *spec.shape[1:]], spec.dtype), inputs)
