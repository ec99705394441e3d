"""Replaces `fit`, `evaluate` and `predict` of Keras's TensorFlow trainer for IPU models.

Keras's own loops over epochs, callbacks and metrics stay; what changes is how one execution runs:

    Keras's fit ── for each execution ──► train_function(iterator) ──► steps_per_execution steps on the device
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

from ipu_tf._config.synthetic_data import SyntheticDataCategory, use_synthetic_data_for
from ipu_tf._loops.step_loop import flush_variables
from ipu_tf.ipu_iterator import stock_iterators
from keras_ipu.pipeline.stage_discovery import discover_stages
from keras_ipu.stock import hooks as keras_hooks
from keras_ipu.stock import models as keras_private
from keras_ipu.stock.ownership import on_device
from keras_ipu.training.common.async_callbacks import asynchronous
from keras_ipu.training.common.epoch_iterator import IPUEpochIterator
from keras_ipu.training.common.model_checks import check_runnable, compile_arguments
from keras_ipu.training.common.run_ahead import unwatched
from keras_ipu.training.common.step_split import replica_count
from keras_ipu.training.common.variable_sync import with_variable_sync
from keras_ipu.training.tensorflow.captured_gradients import capturing_step
from keras_ipu.training.tensorflow.device_functions import PredictFunction, StepFunction

#: How many replicas the model that is running now has: Keras makes its epoch iterator without telling which model.
_replicas: contextvars.ContextVar[int] = contextvars.ContextVar("ipu_replicas", default=1)
#: Whether that model predicts with a `PredictFunction`.
_predicts: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_predicts", default=False)


class IPUTrainer:
    """Replacement of Keras's TensorFlow trainer for models made in the scope of an `IPUStrategy`."""

    def __init__(self) -> None:
        running = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
        self.methods: dict[str, Callable[..., Any]] = dict.fromkeys(running, _run)
        self.methods.update(
            fit=_run_with_callbacks,
            evaluate=_run_with_callbacks,
            predict=_run_with_callbacks,
            compile=_compile,
            make_train_function=_make_train_function,
            make_test_function=_make_test_function,
            make_predict_function=_make_predict_function,
            _maybe_symbolic_build=_build_while_tracing,
            _get_metrics_result_or_logs=_metrics_from_host,
        )

    def owns(self, model: Any) -> bool:
        """Whether a model runs on the device."""
        return on_device(keras_private.strategy_of(model))

    def epoch_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the iterator over an epoch's executions."""
        if on_device(kwargs.get("distribute_strategy")):
            return IPUEpochIterator(*args, replicas=_replicas.get(), predicts=_predicts.get(), **kwargs)
        return keras_hooks.StockEpochIterator(*args, **kwargs)


@contextlib.contextmanager
def _running(model: Any, doing: str) -> Iterator[None]:
    """Context of a run: variables are written back to the host before and after."""
    check_runnable(model)
    replicas = replica_count(model)
    ours = isinstance(model.predict_function, PredictFunction | None)
    tokens = _replicas.set(replicas), _predicts.set(doing == "predict" and ours)
    try:
        with stock_iterators(), asynchronous(model, doing, replicas):
            yield
    finally:
        _replicas.reset(tokens[0])
        _predicts.reset(tokens[1])
        flush_variables()


def _run(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    with _running(model, stock.__name__):
        return stock(model, *args, **kwargs)


def _run_with_callbacks(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    discover_stages(stock, model, args, kwargs)
    with _running(model, stock.__name__):
        args, kwargs, watched = with_variable_sync(stock, model, args, kwargs)
        with unwatched(not watched):
            return stock(model, *args, **kwargs)


def _compile(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> None:
    stock(model, *args, **compile_arguments(kwargs))
    keras_private.adopt(model.optimizer, keras_private.strategy_of(model))


def _make_train_function(stock: Callable[..., Any], model: Any, force: bool = False) -> Any:
    if force or model.train_function is None:
        model.train_function = StepFunction(model, capturing_step(model), training=True)
    return model.train_function


def _make_test_function(stock: Callable[..., Any], model: Any, force: bool = False) -> Any:
    if force or model.test_function is None:
        model.test_function = StepFunction(model, model.test_step)
    return model.test_function


def _make_predict_function(stock: Callable[..., Any], model: Any, force: bool = False) -> Any:
    if force or model.predict_function is None:
        model.predict_function = PredictFunction(model)
    return model.predict_function


def _build_while_tracing(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> None:
    """Builds a model when its step is first traced, as stock Keras does without a strategy."""


def _metrics_from_host(stock: Callable[..., Any], model: Any, logs: Any) -> Any:
    flush_variables()
    if _replicas.get() > 1:
        return logs  # the metrics' variables on the host are those of replica 0
    # With synthetic outfeeds nothing comes from the device: what the step returned are zeros.
    return logs if use_synthetic_data_for(SyntheticDataCategory.Outfeed) else stock(model, logs)


TRAINER = IPUTrainer()
