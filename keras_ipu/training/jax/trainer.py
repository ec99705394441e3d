"""Replaces `fit`, `evaluate` and `predict` of Keras's JAX trainer for IPU models.

Keras's own loops over epochs, callbacks and metrics stay; what changes is how one execution runs:

    Keras's fit ── for each execution ──► train_function(state, iterator) ──► steps_per_execution steps on the device

A step is traced by JAX alone: TensorFlow has no part in it.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ipu_tf._config.synthetic_data import SyntheticDataCategory, use_synthetic_data_for
from ipu_tf._loops.jax_step_loop import refusals_at_lines
from ipu_tf.ipu_iterator import stock_iterators
from keras_ipu.pipeline.stage_discovery import discover_stages
from keras_ipu.stock import hooks as keras_hooks
from keras_ipu.stock.ownership import is_ipu_model, on_device
from keras_ipu.training.common.async_callbacks import asynchronous
from keras_ipu.training.common.data_checks import check_batch
from keras_ipu.training.common.model_checks import check_runnable, compile_arguments
from keras_ipu.training.common.run_ahead import unwatched
from keras_ipu.training.common.step_split import replica_count
from keras_ipu.training.common.variable_sync import SyncVariablesEachBatch, with_variable_sync
from keras_ipu.training.jax.epoch import JaxEpochIterator
from keras_ipu.training.jax.functions import PREDICT, TEST, TRAIN, JaxFunction
from keras_ipu.training.jax.logs import reduce_logs
from keras_ipu.training.jax.state import ReplicaState, separate

_STATE = "_ipu_replica_state"
#: How many replicas the IPU model has that is running now; None where another model runs. Keras makes its epoch
#: iterator without telling for which model.
_replicas: contextvars.ContextVar[int | None] = contextvars.ContextVar("ipu_jax_replicas", default=None)


class JaxIPUTrainer:
    """Replacement of Keras's JAX trainer for models made in the scope of an `IPUStrategy`."""

    def __init__(self) -> None:
        running = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
        self.methods: dict[str, Callable[..., Any]] = dict.fromkeys(running, _run)
        self.methods.update(
            __init__=_init,
            fit=_run_with_callbacks,
            evaluate=_run_with_callbacks,
            predict=_run_with_callbacks,
            compile=_compile,
            make_train_function=_making("train_function", TRAIN),
            make_test_function=_making("test_function", TEST),
            make_predict_function=_making("predict_function", PREDICT),
            _get_metrics_result_or_logs=_metrics_from_host,
        )

    def owns(self, model: Any) -> bool:
        """Returns True: every model of this trainer is handled here."""
        return True

    def epoch_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the iterator over an epoch's executions."""
        replicas = _replicas.get()
        if replicas is None:
            return keras_hooks.StockEpochIterator(*args, **kwargs)
        return JaxEpochIterator(*args, replicas=replicas, **kwargs)


class _SyncJaxVariables(SyncVariablesEachBatch):
    """Callback that syncs the model's variables before batch callbacks read them."""

    def show(self) -> None:
        self.model.jax_state_sync()


def _init(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> None:
    """Assigns a new model to the strategy of the scope, as Keras's TensorFlow backend does."""
    stock(model, *args, **kwargs)
    strategy = tf.distribute.get_strategy()
    if on_device(strategy):
        vars(model)["_distribute_strategy"] = strategy


@contextlib.contextmanager
def _running(model: Any, doing: str) -> Iterator[None]:
    replicas = None
    with contextlib.ExitStack() as within:
        if is_ipu_model(model):
            check_runnable(model)
            replicas = replica_count(model)
            separate(model)
            within.enter_context(stock_iterators())
            within.enter_context(refusals_at_lines())
            within.enter_context(asynchronous(model, doing, replicas, reduce_logs))
        token = _replicas.set(replicas)
        within.callback(_replicas.reset, token)
        yield


def _run(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    if is_ipu_model(model):
        check_batch(args, kwargs)
    with _running(model, stock.__name__):
        return stock(model, *args, **kwargs)


def _run_with_callbacks(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    if not is_ipu_model(model):
        return _run(stock, model, *args, **kwargs)
    discover_stages(stock, model, args, kwargs)
    with _running(model, stock.__name__):
        args, kwargs, watched = with_variable_sync(stock, model, args, kwargs, _SyncJaxVariables)
        with unwatched(not watched):
            return stock(model, *args, **kwargs)


def _compile(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> None:
    stock(model, *args, **(compile_arguments(kwargs) if is_ipu_model(model) else kwargs))


def _making(attribute: str, kind: Any) -> Callable[..., None]:
    """Returns the method that makes one of a model's functions and stores it in an attribute."""

    def make(stock: Callable[..., Any], model: Any, force: bool = False) -> None:
        if not is_ipu_model(model):
            stock(model, force)
        elif force or getattr(model, attribute) is None:
            setattr(model, attribute, JaxFunction(model, kind, _state_of(model)))

    return make


def _metrics_from_host(stock: Callable[..., Any], model: Any, logs: Any) -> Any:
    if (_replicas.get() or 1) > 1:
        return logs  # the metrics' variables on the host are those of replica 0
    synthetic = is_ipu_model(model) and use_synthetic_data_for(SyntheticDataCategory.Outfeed)
    # With synthetic outfeeds nothing comes from the device: what the step returned are zeros.
    return logs if synthetic else stock(model, logs)


def _state_of(model: Any) -> ReplicaState:
    """Returns the model's `ReplicaState`, which all its functions share."""
    return vars(model).setdefault(_STATE, ReplicaState())


JAX_TRAINER = JaxIPUTrainer()
