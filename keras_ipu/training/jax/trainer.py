"""`TRAINER`: replaces Keras's JAX trainer for IPU models. JAX alone traces a step: TensorFlow has no part in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from ipu_tf._loops.jax_step import refusals_at_lines
from keras_ipu.stock.ownership import is_ipu_model, on_device
from keras_ipu.training.common.data_checks import check_batch
from keras_ipu.training.common.step_function import StepKind
from keras_ipu.training.common.step_outputs import ARRAYS
from keras_ipu.training.common.trainer import IPUTrainer, ModelRun, Stock
from keras_ipu.training.common.variable_sync import SyncVariablesEachBatch
from keras_ipu.training.jax.epoch import JaxEpochIterator
from keras_ipu.training.jax.state import ReplicaState, separate
from keras_ipu.training.jax.step_function import JaxStepFunction

_STATE = "_ipu_replica_state"


class _SyncJaxVariables(SyncVariablesEachBatch):
    """Callback that syncs the model's variables before batch callbacks read them."""

    def show(self) -> None:
        self.model.jax_state_sync()


class JaxTrainer(IPUTrainer):
    """Replacement of Keras's JAX trainer for models made in the scope of an `IPUStrategy`."""

    def __init__(self) -> None:
        super().__init__(ARRAYS, _SyncJaxVariables)
        self.methods["__init__"] = _init

    def new_function(self, model: Any, kind: StepKind) -> JaxStepFunction:
        """Returns a new train, test or predict function; all of a model share its `ReplicaState`."""
        return JaxStepFunction(model, kind, vars(model).setdefault(_STATE, ReplicaState()))

    def new_epoch_iterator(self, run: ModelRun, *args: Any, **kwargs: Any) -> JaxEpochIterator:
        """Returns an iterator over the executions of an epoch."""
        return JaxEpochIterator(*args, replicas=run.replicas, **kwargs)

    @contextlib.contextmanager
    def running(self, model: Any) -> Iterator[None]:
        """Context of a run, which donates the arrays of the model's variables."""
        separate(model)
        with refusals_at_lines():
            yield

    def _run_batch(self, stock: Stock, model: Any, *args: Any, **kwargs: Any) -> Any:
        if is_ipu_model(model):
            check_batch(args, kwargs)
        return super()._run_batch(stock, model, *args, **kwargs)


def _init(stock: Stock, model: Any, *args: Any, **kwargs: Any) -> None:
    """Assigns a new model to the strategy of the scope, as Keras's TensorFlow backend does."""
    stock(model, *args, **kwargs)
    strategy = tf.distribute.get_strategy()
    if on_device(strategy):
        vars(model)["_distribute_strategy"] = strategy


TRAINER = JaxTrainer()
