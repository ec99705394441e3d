"""`JaxStepFunction`: train, test and predict functions of IPU models on Keras's JAX back end.

They have the signature of Keras's own: state and iterator in, logs and state out. Keras takes the state from the
model's variables before an epoch, and gives it back after.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any

import jax

from ipu_tf._data.narrow_dtypes import warn_cast
from ipu_tf._loops.interruption import Interrupts
from ipu_tf._loops.jax_feed import JaxFeed
from ipu_tf._loops.jax_step import AccumulationSettings, JaxStep, gather_from_all, own_replica
from ipu_tf.emulation import record_ignored
from ipu_tf.pipeline import require_one_device
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline.run_checks import is_pipelined
from keras_ipu.pipeline.stage_discovery import unknown_stages_refused
from keras_ipu.stock import models as keras_models
from keras_ipu.training.common.async_callbacks import current_run
from keras_ipu.training.common.epoch_iterator import ElementIterator
from keras_ipu.training.common.partial_batches import sizes_vary
from keras_ipu.training.common.replica_metrics import metrics_in_remainder, metrics_in_step
from keras_ipu.training.common.replica_seeds import seeds_of_replicas
from keras_ipu.training.common.step_function import StepFunction, StepKind
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.jax.array_functions import ARRAYS
from keras_ipu.training.jax.model_steps import State, model_step, remainder_step
from keras_ipu.training.jax.state import ReplicaState, StateCopy

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
        self._epoch: weakref.ref[Any] | None = None
        self._trained: tuple[int, ...] = ()

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
        self._note_trained(iterator)
        with Interrupts() as interrupts:  # while the device has the state, the model's variables have none
            return self._run_on(state, iterator, interrupts)

    def _run_on(self, state: State, iterator: Iterator[Any], interrupts: Interrupts) -> tuple[Any, State]:
        state_copy = StateCopy(self._model, self._names, state) if _callbacks_read_variables() else None
        try:
            interrupts.check()
            batches = self._batches(iterator)
            done = self._execute(batches, state)
        except BaseException:
            self._restore_variables(state)
            raise
        if any(array.is_deleted() for array in jax.tree.leaves(done.ran.state)):
            done.ran.raise_for_error()
        after = self._replicas.shown(done.ran.state, done.replicas)
        after = after if state_copy is None else state_copy.merge_callback_writes(after)
        try:
            return self._finish(done, batches), after
        except BaseException:
            self._restore_variables(after)
            raise

    def _note_trained(self, iterator: Iterator[Any]) -> None:
        """Notes which variables are trainable, once for each epoch: Keras takes the state from them before it."""
        if self._epoch is not None and self._epoch() is iterator:
            return
        self._epoch = weakref.ref(iterator) if isinstance(iterator, ElementIterator) else None
        self._trained = tuple(map(id, self._model.trainable_variables))

    def _state_key(self, state: State) -> Any:
        return super()._state_key(state), self._trained

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
            split.accumulation_count, split.reduction, self._accumulators(split), split.replicas, self._divisor()
        )
        step = model_step(model, self._kind)

        def traced(*given: Any) -> tuple[Any, State]:
            seeds = seeds_of_replicas(split, functools.partial(own_replica, split.replicas))
            with unknown_stages_refused(model), metrics_in_step(model, split, gather_from_all), seeds:
                return step(*given)

        return JaxStep(traced, state, batch_spec, accumulation, self._variable_names())

    def _remainder_step(self, batches_spec: Any, state: State, split: StepSplit) -> JaxStep:
        accumulation = AccumulationSettings(reduction=split.reduction, replicas=split.replicas, divisor=self._divisor())
        steps = remainder_step(self._model, self._kind, split)

        def traced(*given: Any) -> tuple[Any, State]:
            with unknown_stages_refused(self._model), metrics_in_remainder(self._model, split):
                return steps(*given)

        return JaxStep(traced, state, batches_spec, accumulation, self._variable_names())

    def _divisor(self) -> int:
        """Returns by what gradients are divided: Keras divides losses by it on TensorFlow alone."""
        return int(keras_models.strategy_of(self._model).num_replicas_in_sync)

    def _variable_names(self) -> dict[str, tuple[str, ...]]:
        """Returns the paths of the variables in each part of the state."""
        return dict(zip(self._names, keras_models.variable_paths(self._model, self._names), strict=True))

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
