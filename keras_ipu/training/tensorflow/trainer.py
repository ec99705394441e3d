"""`TRAINER`: replaces Keras's TensorFlow trainer for IPU models. Their variables stay on the device during a run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ipu_tf._checkpoints.tensorflow_values import Values, read_values, write_values
from ipu_tf._loops.tensorflow_step import flush_variables
from ipu_tf._sessions.session_devices import eager_step
from ipu_tf._state.trace_lock import TRACE_LOCK
from ipu_tf._strategy.run import functions_run_eagerly
from keras_ipu.stock import models as keras_models
from keras_ipu.stock.ownership import is_ipu_model
from keras_ipu.training.common.epoch_iterator import IPUEpochIterator
from keras_ipu.training.common.step_function import PREDICT, StepKind
from keras_ipu.training.common.trainer import IPUTrainer, ModelRun, Stock
from keras_ipu.training.common.variable_sync import SyncVariablesEachBatch
from keras_ipu.training.tensorflow.host_layers import host_layers
from keras_ipu.training.tensorflow.step_functions import TensorFlowPredictFunction, TensorFlowStepFunction
from keras_ipu.training.tensorflow.tensor_functions import TENSORS


class TensorFlowTrainer(IPUTrainer):
    """Replacement of Keras's TensorFlow trainer for models made in the scope of an `IPUStrategy`."""

    def __init__(self) -> None:
        super().__init__(TENSORS, SyncVariablesEachBatch)
        self.methods["_maybe_symbolic_build"] = _build_while_tracing

    def new_function(self, model: Any, kind: StepKind) -> TensorFlowStepFunction:
        """Returns a new train, test or predict function of a model."""
        return TensorFlowPredictFunction(model) if kind is PREDICT else TensorFlowStepFunction(model, kind)

    def new_epoch_iterator(self, run: ModelRun, *args: Any, **kwargs: Any) -> IPUEpochIterator:
        """Returns an iterator over the executions of an epoch."""
        return IPUEpochIterator(
            *args, replicas=run.replicas, predicts=run.reads_ahead, prepared=run.prepared, pads=run.pads, **kwargs
        )

    def batch_preparation(self, model: Any) -> Callable[[Any], Any] | None:
        """Returns what passes a dataset through the layers that only the host can run; None if the model has none."""
        layers = host_layers(model)
        return None if layers is None else layers.prepared_dataset

    def may_be_empty(self, doing: str, validates: bool) -> bool:
        """Returns whether data without a batch is accepted: for all but predictions."""
        return doing != "predict"

    @contextlib.contextmanager
    def running(self, model: Any) -> Iterator[None]:
        """Context of a run: variables are written back to the host after it."""
        try:
            yield
        finally:
            flush_variables()

    @contextlib.contextmanager
    def running_eagerly(self, model: Any) -> Iterator[None]:
        """Context of a run whose steps run op by op: `strategy.run`, which Keras calls, runs them so."""
        flush_variables()
        with functions_run_eagerly(eager_step):
            yield

    def create_variables(self, model: Any, iterator: Any) -> None:
        """Creates all variables that a training step has, before the first one is traced."""
        batch_spec = iterator.batch_spec  # may wait for data, which another thread makes
        with TRACE_LOCK, keras_models.strategy_of(model).scope():
            keras_models.build_all(model, batch_spec)

    def read_variables(self, model: Any, variables: Sequence[Any]) -> list[Values]:
        """Returns copies of the newest values of Keras variables, of every replica."""
        return read_values([variable.value for variable in variables])

    def write_variables(self, model: Any, variables: Sequence[Any], values: Sequence[Values]) -> None:
        """Assigns values to Keras variables between two executions, on every replica."""
        write_values([variable.value for variable in variables], values)

    def _compile(self, stock: Stock, model: Any, *args: Any, **kwargs: Any) -> None:
        super()._compile(stock, model, *args, **kwargs)
        if is_ipu_model(model):
            keras_models.adopt(model.optimizer, keras_models.strategy_of(model))

    def _metrics_from_host(self, stock: Stock, model: Any, logs: Any) -> Any:
        """Writes all variables back to the host at the end of an epoch, then reads its logs from the metrics."""
        if is_ipu_model(model):
            flush_variables()
        return super()._metrics_from_host(stock, model, logs)


def _build_while_tracing(stock: Stock, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Builds a model when its step is first traced, as stock Keras does without a strategy."""
    return None if is_ipu_model(model) else stock(model, *args, **kwargs)


TRAINER = TensorFlowTrainer()
