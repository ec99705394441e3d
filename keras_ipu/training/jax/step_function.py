"""`JaxStepFunction`: train, test and predict functions of IPU models on Keras's JAX back end.

They have the signature of Keras's own: state and iterator in, logs and state out. Keras takes the state from the
model's variables before an epoch, and gives it back after.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import jax

from ipu_tf._loops.jax_feed import JaxFeed
from ipu_tf._loops.jax_step import AccumulationSettings, GradientUpdates, JaxStep
from ipu_tf.emulation import record_ignored
from ipu_tf.pipeline import require_one_device
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline.run_checks import is_pipelined
from keras_ipu.stock import models as keras_models
from keras_ipu.training.common.async_callbacks import current_run
from keras_ipu.training.common.data_checks import warn_cast
from keras_ipu.training.common.epoch_iterator import ElementIterator
from keras_ipu.training.common.partial_batches import gradient_weights, sizes_vary
from keras_ipu.training.common.step_function import StepFunction, StepKind
from keras_ipu.training.common.step_outputs import ARRAYS
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.jax.captured_gradients import step_capture
from keras_ipu.training.jax.state import ReplicaState, StateCopy

State = tuple[list[Any], ...]
Step = Callable[[State, Any], tuple[Any, State]]

_ONE_LOOP = "with Keras on JAX the pipeline is one loop on one device, which keeps one micro-batch"
_STATE_NAMES = {
    "train": keras_models.TRAINING_STATE,
    "test": ("trainable_variables", "non_trainable_variables", "metrics_variables"),
    "predict": ("trainable_variables", "non_trainable_variables"),
}
"""The parts of the state of each kind of step, as Keras calls them."""


class JaxStepFunction(StepFunction):
    """Train, test or predict function: runs one execution, or several ahead of Keras's loop.

    Args:
        model: the model.
        kind: which of its steps.
        replicas: what the model's replicas have of its state.
    """

    def __init__(self, model: Any, kind: StepKind, replicas: ReplicaState) -> None:
        super().__init__(model, kind, ARRAYS)
        self._replicas = replicas
        self._names = _STATE_NAMES[kind.name]

    def __call__(self, state: State, iterator: Iterator[Any]) -> tuple[Any, State]:
        """Runs the next execution; if its steps ran ahead already, only returns their outputs.

        Args:
            state: the values of the model's variables, in lists as Keras gives them. The device takes them over.
            iterator: an epoch's `ElementIterator`, or any iterator over batches, of which all are used up to
                `steps_per_execution`.

        Returns:
            The logs of the last step, or the predictions of all joined along the batch dimension; and the new state.

        Raises:
            StopIteration: if there is no batch left.
            RuntimeError: if gradient accumulation does not divide the steps of the execution.
            EmulationError: if there is not a batch for each replica.
            PipelineDevicesError: if pipelines have to run on several JAX devices.
        """
        if isinstance(iterator, ElementIterator) and iterator.waiting:
            return iterator.waiting.popleft(), state
        state_copy = StateCopy(self._model, self._names, state) if _callbacks_read_variables() else None
        try:
            batches = self._batches(iterator)
            done = self._execute(batches, state)
        except BaseException:
            self._restore_variables(state)
            raise
        after = self._replicas.shown(done.ran.state, done.replicas)
        after = after if state_copy is None else state_copy.merge_callback_writes(after)
        try:
            return self._finish(done, batches), after
        except BaseException:
            self._restore_variables(after)
            raise

    def _feed(self, batches: Iterator[Any]) -> JaxFeed:
        return JaxFeed(batches, warn_cast, sizes_vary())

    def _device_state(self, state: State, replicas: int) -> Any:
        # Callbacks that look at variables keep the arrays: the device runs on copies.
        return self._replicas.all_replicas_state(state, replicas, keep=_callbacks_read_variables())

    def _restore_variables(self, state: State) -> None:
        """Assigns a state to the model's variables again, unless its buffers were donated."""
        if not any(array.is_deleted() for array in jax.tree.leaves(state)):
            keras_models.restore_state(self._model, dict(zip(self._names, state, strict=True)))

    def _device_step(self, batch_spec: Any, state: State, split: StepSplit) -> JaxStep:
        model = self._model
        if is_pipelined(model):
            require_one_device(f"{model.name} runs on Keras's JAX backend, whose steps are not cut into stages")
            mode = options_of(model).pipelining_kwargs.get("recomputation_mode")
            record_ignored("pipeline.recomputation_mode", mode, _ONE_LOOP)
        accumulation = AccumulationSettings(
            split.accumulation_count, split.reduction, self._accumulators(split), split.replicas
        )
        step = _train_step(model) if self._kind.training else _plain_step(model, self._kind)
        return JaxStep(step, state, batch_spec, accumulation)

    def _remainder_step(self, batches_spec: Any, state: State, split: StepSplit) -> JaxStep:
        accumulation = AccumulationSettings(reduction=split.reduction, replicas=split.replicas)
        model = self._model
        steps = _train_steps(model, split) if self._kind.training else _plain_steps(model, self._kind)
        return JaxStep(steps, state, batches_spec, accumulation)

    def _accumulators(self, split: StepSplit) -> tuple[jax.ShapeDtypeStruct, ...]:
        if split.accumulation_count == 1:
            return ()
        variables = self._model.trainable_variables
        wanted = [split.accumulator_dtype(variables, place) for place in range(len(variables))]
        return tuple(
            jax.ShapeDtypeStruct(tuple(variable.shape), variable.dtype if dtype is None else dtype.as_numpy_dtype)
            for variable, dtype in zip(variables, wanted, strict=True)
        )


def _callbacks_read_variables() -> bool:
    """Returns whether callbacks may read the model's variables while the execution runs."""
    run = current_run()
    return run is not None and run.looked_at


def _plain_step(model: Any, kind: StepKind) -> Any:
    """Returns a model's test or predict step."""

    def step(state: State, batch: Any, updates: GradientUpdates) -> tuple[Any, State]:
        if not kind.predicts:
            return _listed(model.test_step(state, batch))
        outputs, non_trainable = model.predict_step(state, batch)
        return _listed((outputs, (state[0], non_trainable)))

    return step


def _train_step(model: Any) -> Any:
    """Returns a model's train step, whose optimizer gets the gradients of all micro-batches and replicas at once."""

    def step(state: State, batch: Any, updates: GradientUpdates) -> tuple[Any, State]:
        def apply(stock: Any, slots: list[Any], gradients: list[Any], weights: list[Any]) -> Any:
            def update(complete: list[Any]) -> Any:
                return handed(lambda: stock(slots, complete, weights))

            return updates.apply(gradients, update, (weights, slots))

        with step_capture(model.optimizer) as handed, _applying(model.optimizer, apply):
            return _listed(model.train_step(state, batch))

    return step


def _plain_steps(model: Any, kind: StepKind) -> Any:
    """Returns a test or predict step for a tuple of batches."""
    step = _plain_step(model, kind)

    def steps(state: State, batches: Any, updates: GradientUpdates) -> tuple[Any, State]:
        return _on_each(lambda now, batch: step(now, batch, updates), state, batches)

    return steps


def _train_steps(model: Any, split: StepSplit) -> Any:
    """Returns a train step for a tuple of batches: the gradients of all make one weight update."""

    def steps(state: State, batches: Any, updates: GradientUpdates) -> tuple[Any, State]:
        weights = gradient_weights(batches, split)
        scaled: list[list[Any]] = []

        def apply(stock: Any, slots: list[Any], gradients: list[Any], variables: list[Any]) -> Any:
            weight = weights[len(scaled)]
            scaled.append(gradients if weight == 1 else [each * weight for each in gradients])
            if len(scaled) < len(weights):
                return variables, slots

            def update(complete: list[Any]) -> Any:
                return handed(lambda: stock(slots, complete, variables))

            return updates.apply(
                [functools.reduce(operator.add, each) for each in zip(*scaled, strict=True)], update, (variables, slots)
            )

        with step_capture(model.optimizer) as handed, _applying(model.optimizer, apply):
            return _on_each(model.train_step, state, batches)

    return steps


def _on_each(step: Step, state: State, batches: Any) -> tuple[tuple[Any, ...], State]:
    """Runs a step on one batch after the other; returns the outputs of each, and the state."""
    outputs = []
    for batch in batches:
        row, state = _listed(step(state, batch))
        outputs.append(row)
    return tuple(outputs), state


def _applying(optimizer: Any, ours: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if optimizer is None else keras_models.patch_stateless_apply(optimizer, ours)


def _listed(result: tuple[Any, Any]) -> tuple[Any, State]:
    row, state = result
    return row, tuple(list(part) for part in state)
