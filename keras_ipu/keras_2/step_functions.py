"""Train, test and predict functions of Keras 2's models, which Keras calls with an iterator over batches.

Keras 2's loop ──► Keras2StepFunction: batches of one execution ──► StepLoop on the device ──► logs or predictions
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ipu_tf._data.narrow_dtypes import warn_cast
from ipu_tf._loops.tensor_feed import TensorFeed
from ipu_tf._loops.tensorflow_step import TensorFlowStep, flush_variables
from ipu_tf.emulation import EmulationError
from ipu_tf.pipeline import require_one_device
from keras_ipu.keras_2.epochs import EndingEpochs, EpochIterator
from keras_ipu.keras_2.pipeline_stages import STAGES_IN_CALL
from keras_ipu.keras_2.split_steps import metrics_in_step, optimizer_state, split_updates, summed_updates
from keras_ipu.pipeline.run_checks import is_pipelined
from keras_ipu.pipeline.stage_scopes import stages_entered
from keras_ipu.stock import models as keras_models
from keras_ipu.training.common.partial_batches import gradient_weights, sizes_vary
from keras_ipu.training.common.step_function import ExecutionBatches, StepFunction, StepKind
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.tensorflow.tensor_functions import TENSORS

_COUNTERS = {"train": "_train_counter", "test": "_test_counter", "predict": "_predict_counter"}

#: The model whose `fit`, `evaluate`, `predict` or method for one batch runs; it writes its variables back to the host.
running_model: contextvars.ContextVar[Any] = contextvars.ContextVar("ipu_keras_2_running_model", default=None)


def steps_per_execution(model: Any) -> int:
    """Returns the batches of an execution as Keras 2's loop counts them now: fewer at the end of an epoch."""
    return 1 if model.steps_per_execution is None else int(model.steps_per_execution)


class Keras2StepFunction(StepFunction):
    """Train, test or predict function of one model.

    Args:
        model: the model, of the package `tf_keras`.
        kind: which of its steps.
        replicas: gives how many replicas the model runs as.
    """

    def __init__(self, model: Any, kind: StepKind, replicas: Callable[[Any], int]) -> None:
        super().__init__(model, kind, TENSORS)
        self._replicas = replicas
        self._autograph = tf.__internal__.autograph.control_status_ctx()
        self._read: tuple[Any, TensorFeed] | None = None

    def __call__(self, iterator: Any) -> Any:
        """Runs the next execution, of as many batches as Keras's loop now counts in `steps_per_execution`.

        Args:
            iterator: over the batches, an `EpochIterator` but for a single batch.

        Returns:
            The logs of the last step, or the predictions of all.

        Raises:
            StopIteration: if there are not so many batches left; those that were left have run.
            RuntimeError: if gradient accumulation does not divide the steps of the execution.
        """
        try:
            return self._outputs_of(self._batches(iterator))
        finally:
            if running_model.get() is not self._model:  # a program calls the function itself
                flush_variables()

    def _outputs_of(self, batches: ExecutionBatches) -> Any:
        done = self._execute(batches)
        counter = getattr(self._model, _COUNTERS[self._kind.name])
        counter.assign_add(done.ran.steps)
        outputs = self._finish(done, batches)
        if done.ran.steps < batches.steps and not self._kind.predicts:
            raise StopIteration
        return outputs

    def _batches(self, iterator: Any) -> ExecutionBatches:
        replicas, wanted = self._replicas(self._model), steps_per_execution(self._model)
        return ExecutionBatches(-(-wanted // replicas), self._feed_of_run(iterator), ahead=False)

    def _feed(self, batches: Iterator[Any]) -> TensorFeed:
        return TensorFeed(batches, warn_cast, sizes_vary())

    def _feed_of_run(self, iterator: Any) -> TensorFeed:
        """Returns the feed of a run's iterator, which was read ahead: one for all of its executions."""
        if not isinstance(iterator, EpochIterator):
            return self._feed(iterator)
        if self._read is None or self._read[0] is not iterator.batches:
            self._read = (iterator.batches, self._feed(self._ending(iterator)))
        return self._read[1]

    def _ending(self, epoch: EpochIterator) -> Iterator[Any]:
        """Returns batches that end with each epoch, if its last ones are not one for each replica, else the same."""
        count = epoch.count or 0
        goes_round = count <= 0 or count % self._replicas(self._model) == 0
        return epoch.batches if goes_round or not sizes_vary() else EndingEpochs(epoch.batches, count)

    def forget_data(self) -> None:
        """Drops the feed of the last iterator."""
        self._read = None

    def _device_step(self, batch_spec: Any, state: Any, split: StepSplit) -> TensorFlowStep:
        model = self._model
        self._check_pipeline()
        if split.all_replicas > 1 and split.joint_metrics:
            self._create_variables(batch_spec)

        def traced(batch: Any) -> Any:
            updates = split_updates(model, split) if self._kind.training else contextlib.nullcontext()
            with keras_models.strategy_of(model).replica_context(), updates, metrics_in_step(model, split):
                return self._step(batch)

        return TensorFlowStep(traced, batch_spec, lambda: optimizer_state(model))

    def _remainder_step(self, batches_spec: Any, state: Any, split: StepSplit) -> TensorFlowStep:
        self._check_pipeline()
        model, one_batch = self._model, dataclasses.replace(split, accumulation_count=1)

        def traced(batches: Any) -> Any:
            updates: Any = contextlib.nullcontext(lambda step: step())
            if self._kind.training:
                updates = summed_updates(model, gradient_weights(batches, split), one_batch)
            with keras_models.strategy_of(model).replica_context(), updates as of_batch:
                return tuple(of_batch(functools.partial(self._step, batch)) for batch in batches)

        return TensorFlowStep(traced, batches_spec, lambda: optimizer_state(model))

    def _check_pipeline(self) -> None:
        """Checks that nobody wants a pipeline on several devices.

        Raises:
            PipelineDevicesError: if so.
        """
        if is_pipelined(self._model):
            require_one_device(f"{self._model.name} is a model of Keras 2, whose call is taken as it is")

    def _step(self, batch: Any) -> Any:
        """Calls the model's step, which is looked up when it is traced; as in Keras's own function, AutoGraph reads it.

        It follows the control flow of the user's layers; functions of this package are traced without it.

        Raises:
            EmulationError: if the model's call enters a `PipelineStage`.
        """
        step, entered = getattr(self._model, f"{self._kind.name}_step"), stages_entered()
        outputs = tf.__internal__.autograph.tf_convert(step, self._autograph)(batch)
        if stages_entered() > entered:
            raise EmulationError(STAGES_IN_CALL.format(model=self._model.name))
        return outputs

    def _create_variables(self, batch_spec: Any) -> None:
        """Traces the step once for what it creates: weights, slots, metrics. Nothing runs."""
        specs = [spec for spec in tf.nest.flatten(batch_spec) if spec is not None]

        def traced(*tensors: tf.Tensor) -> Any:
            given = iter(tensors)
            filled = [None if spec is None else next(given) for spec in tf.nest.flatten(batch_spec)]
            with keras_models.strategy_of(self._model).replica_context():
                return self._step(tf.nest.pack_sequence_as(batch_spec, filled))

        tf.function(traced, autograph=False).get_concrete_function(*specs)
