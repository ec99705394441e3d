"""`JaxFunction`: train, test and predict functions of IPU models on Keras's JAX back end.

They have the signature of Keras's own: state and iterator in, logs and state out. Keras takes the state from the
model's variables before an epoch, and gives it back after.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax

from ipu_tf._loops.jax_feed import JaxFeed
from ipu_tf._loops.jax_step_loop import AccumulationSettings, JaxStepLoop, JaxStepLoopResult, Updates
from ipu_tf._training.replication import target
from ipu_tf.emulation import EmulationError, record_ignored
from ipu_tf.pipeline import require_one_device
from keras_ipu.options.effective_batch_size import log_effective_batch_size
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline.run_checks import accumulates_outfeed, accumulation_steps, is_pipelined
from keras_ipu.pipeline.schedule_check import check_micro_batch_count
from keras_ipu.stock import models as keras_private
from keras_ipu.training.common.async_callbacks import AsynchronousRun, current_run
from keras_ipu.training.common.data_checks import warn_cast
from keras_ipu.training.common.run_ahead import StepsAhead, steps_left
from keras_ipu.training.common.step_split import Split, step_split
from keras_ipu.training.jax.captured_gradients import step_capture
from keras_ipu.training.jax.epoch import JaxElementIterator
from keras_ipu.training.jax.logs import concatenate_predictions, reduce_logs
from keras_ipu.training.jax.state import ReplicaState, StateCopy

State = tuple[list[Any], ...]
Step = Callable[[State, Any], tuple[Any, State]]

_ONE_LOOP = "with Keras on JAX the pipeline is one loop on one device, which keeps one micro-batch"
_TEST = ("trainable_variables", "non_trainable_variables", "metrics_variables")
_PREDICT = ("trainable_variables", "non_trainable_variables")


@dataclasses.dataclass(frozen=True)
class Kind:
    """Kind of step: train, test or predict.

    Attributes:
        names: of the parts of its state, as Keras calls them.
        step: from the model to its step.
        training: whether it changes weights.
        predicts: whether it gives predictions, not logs.
    """

    names: tuple[str, ...]
    step: Callable[[Any], Step]
    training: bool = False
    predicts: bool = False


def _predict_step(model: Any) -> Step:
    def step(state: State, batch: Any) -> tuple[Any, State]:
        outputs, non_trainable = model.predict_step(state, batch)
        return outputs, (state[0], non_trainable)

    return step


TRAIN = Kind(keras_private.TRAINING_STATE, lambda model: model.train_step, training=True)
TEST = Kind(_TEST, lambda model: model.test_step)
PREDICT = Kind(_PREDICT, _predict_step, predicts=True)


class JaxFunction:
    """Runs a model's train, test or predict step in a loop on the device.

    Args:
        model: the model.
        kind: what it does.
        replicas: what the model's replicas have of its state.
    """

    def __init__(self, model: Any, kind: Kind, replicas: ReplicaState) -> None:
        self._model = model
        self._kind = kind
        self._replicas = replicas
        self._loops: dict[Any, JaxStepLoop] = {}
        self._ahead = StepsAhead()

    def __call__(self, state: State, iterator: Iterator[Any]) -> tuple[Any, State]:
        """Runs one execution, or several ahead of Keras's loop: the next calls then only return their outputs.

        Args:
            state: the values of the model's variables, in lists as Keras gives them. The device takes them over.
            iterator: an epoch's `JaxElementIterator`, or any iterator over batches, of which all are used up to
                `steps_per_execution`.

        Returns:
            The logs of the last step, or the predictions of all joined along the batch dimension; and the new state.

        Raises:
            StopIteration: if there is no batch left.
            RuntimeError: if gradient accumulation does not divide the steps of the execution.
            EmulationError: if there is not a batch for each replica.
            PipelineDevicesError: if pipelines have to run on several JAX devices.
        """
        if isinstance(iterator, JaxElementIterator) and iterator.waiting:
            return iterator.waiting.popleft(), state
        watching = current_run()
        lent = StateCopy(self._model, self._kind.names, state) if watching and watching.looked_at else None
        try:
            ran, rows, replicas = self._run(state, iterator, watching, keep=lent is not None)
        except BaseException:
            self._restore_variables(state)
            raise
        after = self._replicas.shown(ran.carried, replicas)
        after = after if lent is None else lent.merge_callback_writes(after)
        if ran.error is not None or ran.steps == 0:
            self._restore_variables(after)
            raise StopIteration if ran.error is None else ran.error
        if isinstance(iterator, JaxElementIterator):
            iterator.waiting.extend(rows[1:])
        return rows[0], after

    def _run(
        self, state: State, iterator: Iterator[Any], watching: AsynchronousRun | None, keep: bool
    ) -> tuple[JaxStepLoopResult, list[Any], int]:
        """Runs an execution, or several of one step; returns outputs, the logs of each, and the number of replicas.

        Args:
            state: as for `__call__`.
            iterator: as for `__call__`.
            watching: whose callbacks are called for each step, or None.
            keep: whether the arrays of the state are kept, for the device to run on copies.
        """
        if isinstance(iterator, JaxElementIterator):
            steps, feed = iterator.steps, iterator.feed
        else:
            steps, feed = self._model.steps_per_execution, JaxFeed(iterator, on_cast=warn_cast)
        training = self._kind.training
        count = accumulation_steps(self._model, steps) if training else 1
        check_micro_batch_count(self._model, count if training else steps, training)
        split = step_split(self._model, count)
        if split.replicas > 1 and not isinstance(iterator, JaxElementIterator):
            raise EmulationError(
                f"A model that runs as {split.replicas} replicas takes {split.replicas} batches a step, one for each. "
                "Received: one batch. Use `fit`, `evaluate` or `predict`, or a device with fewer IPUs."
            )
        averaged = count if training and accumulates_outfeed(self._model) else 1
        single = steps == 1 and watching is None
        all_rows = single or self._kind.predicts or averaged > 1
        loop = self._loop(feed, state, split, all_rows, stepwise=watching is not None, lengths_vary=single)
        whole = self._replicas.all_replicas_state(state, split.replicas, keep)
        if not single:
            ran = loop.run(whole, (), feed, steps, None if watching is None else self._watch(watching))
            return ran, [self._shown(ran.rows, split, averaged)] if ran.steps else [], split.replicas
        with self._ahead.timed(steps_left(iterator), loop.row_bytes) as steps:
            ran = loop.run(whole, (), feed, steps)
        return ran, [self._step_to_keras(ran.rows, step, split) for step in range(ran.steps)], split.replicas

    def _watch(self, watching: AsynchronousRun) -> Callable[[Any], None]:
        return watching.on_step_outputs if self._kind.predicts else watching.on_step_logs

    def _shown(self, rows: Any, split: Split, averaged: int) -> Any:
        if self._kind.predicts:
            return concatenate_predictions(rows, split.replicas)
        return reduce_logs(rows, split.replicas, options_of(self._model).replicated_metric_reduction, averaged)

    def _step_to_keras(self, all_rows: Any, step: int, split: Split) -> Any:
        """Returns the logs or predictions of one step of several."""
        of_one = slice(step, step + 1) if self._kind.predicts else step
        return self._shown(jax.tree.map(lambda rows: rows[of_one], all_rows), split, averaged=1)

    def _restore_variables(self, state: State) -> None:
        """Assigns a state to the model's variables again, unless its buffers were donated."""
        if not any(array.is_deleted() for array in jax.tree.leaves(state)):
            keras_private.restore_state(self._model, dict(zip(self._kind.names, state, strict=True)))

    def _loop(self, feed: JaxFeed, state: State, split: Split, all_rows: bool, **kind: bool) -> JaxStepLoop:
        """Returns the `JaxStepLoop` for a feed's batches; `kind` holds its further arguments."""
        ordinal = keras_private.strategy_of(self._model).device_ordinal
        # Freezing a layer moves its weights from one part of the state to another.
        where = target(ordinal, split.shards)
        key = (feed.spec_name, tuple(map(len, state)), split, all_rows, tuple(kind.items()), where)
        if key not in self._loops:
            spec = feed.spec()
            if self._kind.training:
                shapes = (leaf.shape for leaf in jax.tree.leaves(spec))
                log_effective_batch_size(self._model.name, shapes, split.micro_batches, split.replicas)
            if is_pipelined(self._model):
                require_one_device(
                    f"{self._model.name} runs on Keras's JAX backend, whose steps are not cut into stages"
                )
                mode = options_of(self._model).pipelining_kwargs.get("recomputation_mode")
                record_ignored("pipeline.recomputation_mode", mode, _ONE_LOOP)
            rule = AccumulationSettings(split.micro_batches, split.reduction, self._accumulators(split), split.replicas)
            step = _split_step(self._model, self._kind)
            self._loops[key] = JaxStepLoop(step, state, (), spec, rule, ordinal, all_rows, split.shards, **kind)
        return self._loops[key]

    def _accumulators(self, split: Split) -> tuple[jax.ShapeDtypeStruct, ...]:
        if split.micro_batches == 1:
            return ()
        variables = self._model.trainable_variables
        wanted = [split.accumulator_dtype(variables, place) for place in range(len(variables))]
        return tuple(
            jax.ShapeDtypeStruct(tuple(variable.shape), variable.dtype if dtype is None else dtype.as_numpy_dtype)
            for variable, dtype in zip(variables, wanted, strict=True)
        )


def _split_step(model: Any, kind: Kind) -> Any:
    """Returns a step whose optimizer gets the gradients of all micro-batches and replicas at once."""

    def step(state: State, constants: Any, batch: Any, updates: Updates) -> tuple[Any, State]:
        if not kind.training:
            return _listed(kind.step(model)(state, batch))

        def apply(stock: Any, slots: list[Any], gradients: list[Any], weights: list[Any]) -> Any:
            def update(complete: list[Any]) -> Any:
                return handed(lambda: stock(slots, complete, weights))

            return updates.apply(gradients, update, (weights, slots))

        with step_capture(model.optimizer) as handed, _applying(model.optimizer, apply):
            return _listed(kind.step(model)(state, batch))

    return step


def _applying(optimizer: Any, ours: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if optimizer is None else keras_private.patch_stateless_apply(optimizer, ours)


def _listed(result: tuple[Any, Any]) -> tuple[Any, State]:
    row, state = result
    return row, tuple(list(part) for part in state)
