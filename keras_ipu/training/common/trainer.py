"""`IPUTrainer`: replaces `fit`, `evaluate` and `predict` of Keras's trainer for IPU models.

Keras's own loops over epochs, callbacks and metrics stay; what changes is how one execution runs:

    Keras's fit ── for each execution ──► train_function ──► steps_per_execution steps on the device

`tensorflow/trainer.py` and `jax/trainer.py` add what differs between the back ends.
"""

from __future__ import annotations

import abc
import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ipu_tf._checkpoints.tensorflow_values import Values
from ipu_tf._config.state import graphcore_rules
from ipu_tf._config.synthetic_data import SyntheticDataCategory, use_synthetic_data_for
from ipu_tf._loops.interruption import InterruptibleCall
from ipu_tf._state.context import context_value
from ipu_tf._state.trace_lock import TRACE_LOCK
from ipu_tf._strategy.auto_shard import keras_distributes
from ipu_tf._training.replication import instance_count
from ipu_tf.ipu_iterator import stock_iterators
from ipu_tf.libpvti import TraceChannel, Tracepoint
from keras_ipu.callbacks.resumable_fit import resumable
from keras_ipu.pipeline.run_checks import check_before
from keras_ipu.pipeline.stage_discovery import discover_stages, discover_stages_of_batch
from keras_ipu.stock.ownership import is_ipu_model
from keras_ipu.training.common import eager_runs
from keras_ipu.training.common.async_callbacks import asynchronous
from keras_ipu.training.common.epoch_iterator import may_be_empty
from keras_ipu.training.common.instance_data import current_first_batch, share_data
from keras_ipu.training.common.instances import share_initial_values, show_progress_once
from keras_ipu.training.common.model_checks import (
    check_runnable,
    checked_arguments,
    compile_arguments,
    dense_arguments,
    scaled_once,
)
from keras_ipu.training.common.outputs_for_keras import ArrayFunctions, single_batch
from keras_ipu.training.common.padding import may_pad
from keras_ipu.training.common.partial_batches import sizes_vary
from keras_ipu.training.common.run_ahead import without_batch_callbacks
from keras_ipu.training.common.running_streams import wait_for_streams
from keras_ipu.training.common.step_function import PREDICT, TEST, TRAIN, StepFunction, StepKind
from keras_ipu.training.common.step_split import replica_count
from keras_ipu.training.common.variable_sync import SyncVariablesEachBatch, variables_synced

Stock = Callable[..., Any]
"""A method of Keras's trainer, unbound."""


@dataclasses.dataclass(frozen=True)
class ModelRun:
    """Run of an IPU model: of `fit`, `evaluate`, `predict`, or a method for one batch.

    Attributes:
        replicas: how many replicas the model has.
        reads_ahead: whether the device may read batches before Keras's loop asks for them, in `predict`.
        prepared: what a dataset of batches is passed through before the device is fed; None if nothing.
        pads: returns whether arrays of less than a batch may be padded, in `predict`; None if nothing is.
    """

    replicas: int
    reads_ahead: bool = False
    prepared: Callable[[Any], Any] | None = None
    pads: Callable[[], bool] | None = None


_run: contextvars.ContextVar[ModelRun | None] = contextvars.ContextVar("ipu_model_run", default=None)
"""The run of this thread; None where no model runs, or one that is none of an `IPUStrategy`.

Keras makes its epoch iterator without telling for which model.
"""


_CHANNEL = TraceChannel("Keras")


class IPUTrainer(abc.ABC):
    """Replacement of Keras's trainer: each method is `ours(stock, model, ...)`, for IPU models only.

    Args:
        arrays: functions on the arrays that the back end's steps return.
        variable_sync: callback that writes variables back before callbacks of batches read them.

    Attributes:
        methods: the replaced methods by name.
    """

    def __init__(self, arrays: ArrayFunctions, variable_sync: type[SyncVariablesEachBatch]) -> None:
        self._arrays = arrays
        self._variable_sync = variable_sync
        self.methods: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(("fit", "evaluate", "predict"), self._run_epochs),
            **dict.fromkeys(("train_on_batch", "test_on_batch", "predict_on_batch"), self._run_batch),
            "compile": self._compile,
            "make_train_function": self._making("train_function", TRAIN),
            "make_test_function": self._making("test_function", TEST),
            "make_predict_function": self._making("predict_function", PREDICT),
            "_get_metrics_result_or_logs": self._metrics_from_host,
        }

    @abc.abstractmethod
    def new_function(self, model: Any, kind: StepKind) -> StepFunction:
        """Returns a new train, test or predict function of a model."""

    @abc.abstractmethod
    def new_epoch_iterator(self, run: ModelRun, *args: Any, **kwargs: Any) -> Any:
        """Returns an iterator over the executions of an epoch of a run; further arguments are those of Keras's."""

    @abc.abstractmethod
    def running(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Context of a run of a model."""

    @abc.abstractmethod
    def running_eagerly(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Context of a run of a model whose steps run op by op."""

    def batch_preparation(self, model: Any) -> Callable[[Any], Any] | None:
        """Returns what a dataset of a model's batches is passed through before the device is fed; None if nothing."""
        return None

    def may_be_empty(self, doing: str, validates: bool) -> bool:
        """Returns whether the back end's stock Keras accepts data without a batch.

        Args:
            doing: the method that runs: "fit", "evaluate" or "predict".
            validates: whether `fit` calls it for its validation data.
        """
        return validates

    @abc.abstractmethod
    def create_variables(self, model: Any, iterator: Any) -> None:
        """Creates all variables that a training step has, before the first one is traced."""

    @abc.abstractmethod
    def read_variables(self, model: Any, variables: Sequence[Any]) -> list[Values]:
        """Returns copies of the newest values of Keras variables, of every replica."""

    @abc.abstractmethod
    def write_variables(self, model: Any, variables: Sequence[Any], values: Sequence[Values]) -> None:
        """Assigns values to Keras variables between two executions, on every replica."""

    def eager_step_ran(self) -> None:  # noqa: B027 - only one back end has something to do
        """Called after each execution of a model that runs eagerly."""

    def epoch_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the iterator over an epoch's executions: Keras's own where no IPU model runs."""
        run = _run.get()
        if run is None:
            return eager_runs.stock_epoch_iterator(*args, **kwargs)
        return self.new_epoch_iterator(run, *args, **kwargs)

    def _run_epochs(self, stock: Stock, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Replaces `fit`, `evaluate` and `predict`: checks, then Keras's own loop with variables synced."""
        if not is_ipu_model(model):
            return _run_stock(stock, model, *args, **kwargs)
        wait_for_streams(model)
        with InterruptibleCall(), Tracepoint(_CHANNEL, f"{model.name}.{stock.__name__}()"):
            return self._run_interruptible(stock, model, *args, **kwargs)

    def _run_interruptible(self, stock: Stock, model: Any, *args: Any, **kwargs: Any) -> Any:
        bound = checked_arguments(stock, model, args, kwargs)
        if eager_runs.runs_eagerly(model):
            first = share_data(stock.__name__, model, bound.arguments, 1)
            args, kwargs = dense_arguments(bound.args[1:], bound.kwargs)
            with context_value(current_first_batch, first):
                return self._run_eagerly(stock, model, *args, **kwargs)
        given = bound.arguments
        show_progress_once(given)
        check_before(model, stock.__name__)
        if discover_stages(model, given):
            check_before(model, stock.__name__)
        accepted = self.may_be_empty(stock.__name__, bool(bound.kwargs.get("_use_cached_eval_dataset")))
        first = share_data(stock.__name__, model, given, replica_count(model))
        with (
            context_value(current_first_batch, first),
            context_value(keras_distributes, True),
            context_value(may_be_empty, accepted and not graphcore_rules()),
            self._running(model, stock.__name__),
            resumable(stock.__name__, model, given, self),
            variables_synced(model, given, self._variable_sync) as watched,
            without_batch_callbacks(not watched),
        ):
            return stock(*bound.args, **bound.kwargs)

    def _run_batch(self, stock: Stock, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Replaces `train_on_batch`, `test_on_batch` and `predict_on_batch`."""
        if not is_ipu_model(model):
            return _run_stock(stock, model, *args, **kwargs)
        wait_for_streams(model)
        args, kwargs = dense_arguments(args, kwargs)
        if eager_runs.runs_eagerly(model):
            return self._run_eagerly(stock, model, *args, **kwargs)
        discover_stages_of_batch(model, args[0] if args else kwargs.get("x"))
        with InterruptibleCall(), self._running(model, stock.__name__), context_value(single_batch, True):
            return stock(model, *args, **kwargs)

    def _run_eagerly(self, stock: Stock, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs Keras's own loop, whose steps run op by op on the device."""
        check_runnable(model)
        eager_runs.check_eager_model(model)
        with (
            self.running_eagerly(model),
            stock_iterators(),
            context_value(keras_distributes, True),
            context_value(_run, None),
            eager_runs.eager_run(True),
        ):
            return stock(model, *args, **kwargs)

    @contextlib.contextmanager
    def _running(self, model: Any, doing: str) -> Iterator[None]:
        check_runnable(model)
        replicas = replica_count(model)
        own_function = isinstance(model.predict_function, StepFunction | None)
        predicts = doing == "predict" and own_function
        all_replicas = replicas * instance_count()
        pads = functools.partial(may_pad, model, all_replicas) if predicts and sizes_vary() else None
        run = ModelRun(replicas, predicts, self.batch_preparation(model), pads)
        with (
            self.running(model),
            context_value(_run, run),
            stock_iterators(),
            asynchronous(model, doing, replicas, self._arrays),
        ):
            yield

    def _compile(self, stock: Stock, model: Any, *args: Any, **kwargs: Any) -> None:
        if is_ipu_model(model):
            wait_for_streams(model)
            kwargs = compile_arguments(kwargs)
        args, kwargs = scaled_once(args, kwargs)
        stock(model, *args, **kwargs)

    def _making(self, attribute: str, kind: StepKind) -> Callable[..., Any]:
        """Returns the method that makes one of a model's functions and stores it in an attribute."""

        def make(stock: Stock, model: Any, force: bool = False) -> Any:
            if not is_ipu_model(model):
                return stock(model, force)
            share_initial_values(model)
            with TRACE_LOCK:  # threads that run a model get the one function
                self._make_missing(stock, model, attribute, kind, force)
            return getattr(model, attribute)

        return make

    def _make_missing(self, stock: Stock, model: Any, attribute: str, kind: StepKind, force: bool) -> None:
        """Makes one of a model's functions, unless it has it and it is not to be made anew."""
        now = getattr(model, attribute)
        if eager_runs.runs_eagerly(model):
            if force or isinstance(now, StepFunction | None):
                stock(model, True)
                function = getattr(model, attribute)
                setattr(model, attribute, eager_runs.EagerFunction(function, self.eager_step_ran, kind.training))
        elif force or isinstance(now, eager_runs.EagerFunction | None):
            setattr(model, attribute, self.new_function(model, kind))

    def _metrics_from_host(self, stock: Stock, model: Any, logs: Any) -> Any:
        """Replaces `_get_metrics_result_or_logs`: Keras reads the logs of an epoch from the variables of the metrics.

        On TensorFlow variables are written back before, at the end of each epoch: `TensorFlowTrainer` does that.
        """
        if not is_ipu_model(model):
            return stock(model, logs)
        run = _run.get()
        if not logs or (run is not None and run.replicas * instance_count() > 1):
            # Without a batch nothing has built the metrics. Of replicas the host has the variables of the first one.
            return logs
        # With synthetic outfeeds nothing comes from the device: what the step returned are zeros.
        return logs if use_synthetic_data_for(SyntheticDataCategory.Outfeed) else stock(model, logs)


def is_running() -> bool:
    """Returns whether an IPU model trains, evaluates or predicts, in whose callbacks this is called."""
    return _run.get() is not None


def _run_stock(stock: Stock, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs a model that is none of an `IPUStrategy`, maybe from a callback of one that is."""
    with context_value(_run, None), eager_runs.eager_run(False):
        return stock(model, *args, **kwargs)
