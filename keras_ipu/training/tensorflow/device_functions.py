"""`StepFunction` and `PredictFunction`: train, test and predict functions of IPU models on TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._loops.step_loop import StepLoop
from ipu_tf._loops.tensor_feed import Feed
from ipu_tf._training.replication import target
from ipu_tf._training.weight_update import accumulate_and_apply
from ipu_tf.emulation import EmulationError
from keras_ipu.options.effective_batch_size import log_effective_batch_size
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline.graph import build_graph
from keras_ipu.pipeline.run_checks import accumulates_outfeed, accumulation_steps, is_pipelined
from keras_ipu.pipeline.schedule_check import check_micro_batch_count
from keras_ipu.pipeline.staged_call import staged_call
from keras_ipu.stock import models as keras_private
from keras_ipu.training.common.async_callbacks import current_run
from keras_ipu.training.common.data_checks import warn_cast
from keras_ipu.training.common.epoch_iterator import BatchPlaceholder, ElementIterator, ReplicaBatches
from keras_ipu.training.common.recurrent_weights import hoist_weight_reads
from keras_ipu.training.common.replicated_logs import reduce_replica_logs
from keras_ipu.training.common.run_ahead import StepsAhead, steps_left
from keras_ipu.training.common.step_split import Split, step_split
from keras_ipu.training.tensorflow.summed_rows import rows_summed


class StepFunction:
    """Runs a model's train or test step in a loop on the device.

    Args:
        model: the model.
        step: its `train_step` or `test_step`.
        training: whether the step changes weights.
    """

    def __init__(self, model: Any, step: Callable[[Any], Any], training: bool = False) -> None:
        self._model = model
        self._training = training
        self._loops = _Loops(model, _split_step(model, step) if training else _plain_step(step), training)

    def __call__(self, iterator: Any) -> Any:
        """Runs one execution, or several ahead of Keras's loop: the next calls then only return their logs.

        Args:
            iterator: an epoch's `ElementIterator`, or any Python iterator over batches, of which all are used up to
                `steps_per_execution`.

        Returns:
            The logs of the last step.

        Raises:
            StopIteration: if there is no batch left.
            RuntimeError: if gradient accumulation does not divide the steps of the execution.
        """
        if isinstance(iterator, ElementIterator):
            if iterator.waiting:
                return iterator.waiting.popleft()
            steps, feed = iterator.steps, iterator.feed
        else:
            steps, feed = self._model.steps_per_execution, Feed(iterator, on_cast=warn_cast)
        count = accumulation_steps(self._model, steps) if self._training else 1
        check_micro_batch_count(self._model, count if self._training else steps, self._training)
        split = step_split(self._model, count)
        if split.replicas > 1 and not isinstance(iterator, ElementIterator):
            raise EmulationError(
                f"A model that runs as {split.replicas} replicas takes {split.replicas} batches a step, one for each. "
                "Received: one batch. Use `fit`, `evaluate` or `predict`, or a device with fewer IPUs."
            )
        run = current_run()
        method = options_of(self._model).replicated_metric_reduction
        if steps == 1 and run is None:
            rows = self._loops.run_ahead(iterator, feed, split)
            first, *others = (reduce_replica_logs(row, split.replicas, method) for row in rows)
            if others:
                iterator.waiting.extend(others)
            return first
        averaged = count if self._training and accumulates_outfeed(self._model) else 1
        loop = self._loops.loop_for(feed, split, all_rows=averaged > 1, stepwise=run is not None)
        ran = loop.run(feed, steps, run.on_step_logs if run else None)
        if ran.steps == 0:
            raise StopIteration
        return reduce_replica_logs(ran.rows, split.replicas, method, averaged)


class PredictFunction:
    """Runs a model's predict step in a loop on the device.

    Args:
        model: the model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._loops = _Loops(model, _plain_step(model.predict_step))

    def __call__(self, batches: list[Any]) -> Any:
        """The predictions for some batches, joined along the batch dimension in the order of the batches.

        Args:
            batches: for each step one batch, with several replicas a list with one for each replica; or an
                `BatchPlaceholder`. A single one of these may make the device run further steps ahead: then
                the next calls only give the predictions of theirs.

        Raises:
            StopIteration: if there is no batch left.
            EmulationError: if there is not a batch for each replica.
        """
        elements = batches[0].elements if isinstance(batches[0], BatchPlaceholder) else None
        if elements is not None and elements.waiting:
            return elements.waiting.popleft()
        split = step_split(self._model)
        steps = len(batches)
        check_micro_batch_count(self._model, steps, False)
        feed = _feed_of(batches, split.replicas) if elements is None else elements.feed
        run = current_run()
        if elements is not None and steps == 1 and run is None:
            rows = self._loops.run_ahead(elements, feed, split)
            elements.waiting.extend(_predictions(row, split, several_steps=False) for row in rows)
            return elements.waiting.popleft()
        loop = self._loops.loop_for(feed, split, all_rows=True, stepwise=run is not None)
        ran = loop.run(feed, steps, run.on_step_outputs if run else None)
        if ran.steps == 0:
            raise StopIteration
        return _predictions(ran.rows, split, several_steps=True)


def _feed_of(batches: list[Any], replicas: int) -> Feed:
    """Returns the feed of the batches of steps, those of each replica in turn."""
    if replicas > 1:
        if not all(isinstance(step, ReplicaBatches) for step in batches):
            raise EmulationError(
                f"A model that runs as {replicas} replicas predicts {replicas} batches at a time. "
                "Received: one batch. Use `predict`, or a device with fewer IPUs."
            )
        batches = [batch for step in batches for batch in step]
    return Feed(iter(batches), on_cast=warn_cast)


class _Loops:
    """Cache of a step's loops on the device, by shape of the batch and step split."""

    def __init__(self, model: Any, step: Callable[[Any, Split], Any], training: bool = False) -> None:
        self._model = model
        self._training = training
        self._strategy = keras_private.strategy_of(model)
        self._step = step
        self._loops: dict[Any, StepLoop] = {}
        self._ahead = StepsAhead()

    def loop_for(self, feed: Feed, split: Split, all_rows: bool = False, **kind: bool) -> StepLoop:
        """Returns the `StepLoop` for a feed's batches; `kind` holds its further arguments."""
        ordinal = self._strategy.device_ordinal
        key = (feed.spec_name, split, all_rows, tuple(kind.items()), target(ordinal, split.shards))
        if key not in self._loops:
            spec = feed.spec()
            if self._training:
                shapes = (tuple(each.shape) for each in tf.nest.flatten(spec) if each is not None)
                log_effective_batch_size(self._model.name, shapes, split.micro_batches, split.replicas)
            if is_pipelined(self._model):
                build_graph(self._model, _inputs_of(spec))

            def traced(batch: Any) -> Any:
                staged = staged_call(self._model, split.micro_batches, self._training)
                with self._strategy.replica_context(), staged, hoist_weight_reads():
                    return self._step(batch, split)

            self._loops[key] = StepLoop(traced, spec, ordinal, all_rows, split.shards, **kind)
        return self._loops[key]

    def run_ahead(self, iterator: Any, feed: Feed, split: Split) -> list[Any]:
        """Runs a step, and possibly further ones ahead of Keras's loop; returns the outputs of each.

        Raises:
            StopIteration: if there is no batch left.
        """
        loop = self.loop_for(feed, split, all_rows=True, lengths_vary=True)
        with self._ahead.timed(1 if loop.calls_host else steps_left(iterator), loop.row_bytes) as steps:
            rows = loop.run_each(feed, steps)
        if not rows:
            raise StopIteration
        return rows


def _inputs_of(batch: Any) -> Any:
    """Returns the input specs of a model for a batch, with any batch size."""
    inputs, *_ = keras.utils.unpack_x_y_sample_weight(batch)
    return tf.nest.map_structure(lambda spec: tf.TensorSpec([None, *spec.shape[1:]], spec.dtype), inputs)


def _plain_step(step: Callable[[Any], Any]) -> Callable[[Any, Split], Any]:
    return lambda batch, split: step(batch)


def _split_step(model: Any, step: Callable[[Any], Any]) -> Callable[[Any, Split], Any]:
    """Returns a train step whose optimizer gets the gradients of all micro-batches and replicas at once."""

    def run(batch: Any, split: Split) -> Any:
        if model.optimizer is None:
            return step(batch)
        with keras_private.applying(
            model.optimizer, lambda *call: _accumulate_and_apply(model.optimizer, split, *call)
        ):
            return step(batch)

    return run


def _accumulate_and_apply(
    optimizer: Any, split: Split, stock: Callable[..., Any], gradients: list[Any], variables: Any
) -> None:
    variables = None if variables is None else list(variables)
    gradients = rows_summed(optimizer, gradients, variables)
    if split.whole:
        stock(gradients, variables)
        return
    if variables is not None and not optimizer.built:
        with keras_private.scope_of_optimizer(optimizer):
            optimizer.build(variables)
    accumulate_and_apply(
        gradients,
        lambda complete: stock(complete, variables),
        split.micro_batches,
        split.replicas,
        split.reduction,
        lambda position: split.accumulator_dtype(variables, position),
    )


def _predictions(rows: Any, split: Split, several_steps: bool) -> Any:
    """Returns the outputs of the predict step in the form that Keras expects."""
    lead = int(several_steps) + int(split.replicas > 1)
    return tf.nest.map_structure(lambda array: _joined(array, lead), rows)


def _joined(rows: tf.Tensor, lead: int) -> tf.Tensor:
    """Joins `[(steps,) (replicas,) batch, ...]` to one dimension of samples; scalars become one value a step."""
    if lead == 0 and rows.shape.rank:
        return rows
    if rows.shape.rank == lead:
        return tf.reshape(rows, [-1])
    return tf.reshape(rows, [-1, *rows.shape[lead + 1 :]])
