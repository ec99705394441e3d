"""`TRAINER`: replaces Keras's JAX trainer for IPU models. JAX alone traces a step: TensorFlow has no part in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._checkpoints.tensorflow_values import Values
from ipu_tf._data.narrow_dtypes import warn_cast
from ipu_tf._loops.jax_feed import JaxFeed
from ipu_tf._loops.jax_step import count_eager_execution, refusals_at_lines
from keras_ipu.stock import models as keras_models
from keras_ipu.stock.arrays import zeros_from_host
from keras_ipu.stock.ownership import is_ipu_model, on_device
from keras_ipu.training.common.data_checks import check_batch
from keras_ipu.training.common.epoch_iterator import ElementIterator, IPUEpochIterator
from keras_ipu.training.common.partial_batches import sizes_vary
from keras_ipu.training.common.sparse_data import DenseBatches
from keras_ipu.training.common.step_function import StepKind
from keras_ipu.training.common.trainer import IPUTrainer, ModelRun, Stock
from keras_ipu.training.common.variable_sync import SyncVariablesEachBatch
from keras_ipu.training.jax.array_functions import ARRAYS
from keras_ipu.training.jax.state import replica_state_of, separate
from keras_ipu.training.jax.step_function import JaxStepFunction


class JaxElementIterator(ElementIterator):
    """The batches of an epoch, one at a time also for several replicas, and how many steps an execution runs.

    Args:
        iterator: Keras's iterator over the batches.
        steps: steps of one execution, of each replica.
        filled: see `ElementIterator`.
        size: samples of a full batch; None for those of the first.
    """

    def __init__(self, iterator: Iterator[Any], steps: int, filled: bool = False, size: int | None = None) -> None:
        feed = JaxFeed(iterator, warn_cast, sizes_vary(), size)
        super().__init__(iterator, feed, steps, replicas=1, wanted=steps, filled=filled)


class JaxEpochIterator(IPUEpochIterator):
    """`IPUEpochIterator` for the JAX backend: executions take their batches from `JaxElementIterator`."""

    arrays_of = staticmethod(lambda adapter: None)
    opens_when_read = True

    def _get_iterator(self) -> Any:
        # Bypasses Keras's own iterator, which would copy batches to JAX's device one by one.
        batches = DenseBatches(iter(self.data_adapter.get_jax_iterator()))
        size = self.padded_size(self.data_adapter)
        elements = JaxElementIterator(batches, self.steps_per_execution, self.begin_pass(), size)
        return self._tracked(elements)


class _SyncJaxVariables(SyncVariablesEachBatch):
    """Callback that syncs the model's variables before batch callbacks read them."""

    def show(self) -> None:
        self.model.jax_state_sync()


class JaxTrainer(IPUTrainer):
    """Replacement of Keras's JAX trainer for models made in the scope of an `IPUStrategy`."""

    def __init__(self) -> None:
        super().__init__(ARRAYS, _SyncJaxVariables)
        self.methods["__init__"] = _init
        self.methods["_symbolic_build"] = _build

    def new_function(self, model: Any, kind: StepKind) -> JaxStepFunction:
        """Returns a new train, test or predict function; all of a model share its `ReplicaState`."""
        return JaxStepFunction(model, kind, replica_state_of(model))

    def new_epoch_iterator(self, run: ModelRun, *args: Any, **kwargs: Any) -> JaxEpochIterator:
        """Returns an iterator over the executions of an epoch."""
        return JaxEpochIterator(*args, replicas=run.replicas, pads=run.pads, **kwargs)

    @contextlib.contextmanager
    def running(self, model: Any) -> Iterator[None]:
        """Context of a run, which donates the arrays of the model's variables."""
        separate(model)
        with refusals_at_lines():
            try:
                yield
            except BaseException:
                keras_models.sync_left_state(model)
                raise

    def running_eagerly(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Context of a run whose steps run op by op: JAX needs none."""
        return contextlib.nullcontext()

    def create_variables(self, model: Any, iterator: Any) -> None:
        """Does nothing: Keras on JAX creates all variables before `fit` calls its callbacks."""

    def read_variables(self, model: Any, variables: Sequence[Any]) -> list[Values]:
        """Returns copies of the newest values of Keras variables, of every replica."""
        model.jax_state_sync()
        replicas = replica_state_of(model)
        arrays = [variable.value for variable in variables]
        return [(np.array(array), replicas.of_each_replica(array)) for array in arrays]

    def write_variables(self, model: Any, variables: Sequence[Any], values: Sequence[Values]) -> None:
        """Assigns values to Keras variables between two executions, on every replica."""
        replicas = replica_state_of(model)
        for variable, (value, of_replicas) in zip(variables, values, strict=True):
            variable.assign(value)
            if of_replicas is not None:
                replicas.restore(variable.value, of_replicas)

    def eager_step_ran(self) -> None:
        """Counts an execution: JAX itself runs the ops, on the devices that programs run on."""
        count_eager_execution()

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


def _build(stock: Stock, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Creates what variables a model and its optimizer do not have yet."""
    with zeros_from_host() if is_ipu_model(model) else contextlib.nullcontext():
        return stock(model, *args, **kwargs)


TRAINER = JaxTrainer()
