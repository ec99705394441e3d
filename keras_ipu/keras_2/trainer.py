"""Replaces `fit`, `evaluate` and `predict` of Keras 2's models that were made in an `IPUStrategy`'s scope.

Keras 2's own loops over epochs, callbacks and metrics stay; what changes is how one execution runs:

    Keras 2's fit ── for each execution ──► train_function ──► steps_per_execution steps on the device
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ipu_tf._loops.interruption import InterruptibleCall
from ipu_tf._loops.tensorflow_step import flush_variables
from ipu_tf._patches.installation import replace_in
from ipu_tf._sessions.session_devices import eager_step
from ipu_tf._state.context import context_value
from ipu_tf._strategy.run import functions_run_eagerly
from ipu_tf.emulation import EmulationError
from ipu_tf.ipu_iterator import stock_iterators
from keras_ipu.keras_2.epochs import with_counts
from keras_ipu.keras_2.model_methods import add_methods
from keras_ipu.keras_2.pipeline_stages import assign_from_scopes
from keras_ipu.keras_2.step_functions import Keras2StepFunction, running_model, steps_per_execution
from keras_ipu.keras_2.variable_sync import variable_sync
from keras_ipu.pipeline.run_checks import OVERRIDDEN
from keras_ipu.pipeline.stage_scopes import record_stage
from keras_ipu.stock.models import strategy_of
from keras_ipu.stock.ownership import on_device
from keras_ipu.stock.patches import patch_calls
from keras_ipu.training.common.eager_runs import check_eager_model
from keras_ipu.training.common.step_function import PREDICT, TEST, TRAIN, StepKind
from keras_ipu.training.common.step_split import replica_count

Stock = Callable[..., Any]
"""A method of a Keras 2 model, unbound."""

_KINDS = {"train_function": TRAIN, "test_function": TEST, "predict_function": PREDICT}
_FUNCTIONS = {"fit": "train_function", "evaluate": "test_function", "predict": "predict_function"}
"""By name of a method that loops: the function that it calls."""

#: Models whose loops run in this thread, and the batches of an execution of theirs for all replicas: a run may be
#: within another one, as `evaluate` in `fit`.
_counting: contextvars.ContextVar[tuple[tuple[Any, int], ...]] = contextvars.ContextVar(
    "ipu_keras_2_counting", default=()
)


def tf_keras() -> Any:
    """Returns the package, which only programs for Keras 2 have.

    Raises:
        EmulationError: if it is not installed.
    """
    try:
        return importlib.import_module("tf_keras")
    except ModuleNotFoundError as error:
        raise EmulationError(
            "TF_USE_LEGACY_KERAS makes `tf.keras` the package `tf_keras`, which is not installed: `pip install "
            "tf_keras`, or unset that variable."
        ) from error


def install() -> None:
    """Patches `tf_keras.Model`, once. Models made outside a scope keep the stock behaviour."""
    model_class = tf_keras().Model
    for name in ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"):
        _patch(model_class, name, functools.partial(_run, name))
    for attribute, kind in _KINDS.items():
        _patch(model_class, f"make_{attribute}", functools.partial(_make, attribute, kind))
    scaling = sys.modules[tf_keras().mixed_precision.LossScaleOptimizer.__module__]
    replace_in(scaling, "strategy_supports_loss_scaling", _supports_loss_scaling, by=__name__)
    handlers = importlib.import_module("tf_keras.src.engine.data_adapter")
    replace_in(handlers.DataHandler, "enumerate_epochs", with_counts, by=__name__)
    _patch(model_class, "_validate_and_get_metrics_result", _metrics_from_host)
    add_methods(model_class)
    patch_calls(tf_keras().layers.Layer, importlib.import_module("tf_keras.src.engine.node").Node, record_stage)


def _supports_loss_scaling(stock: Callable[[], bool]) -> Callable[[], bool]:
    def supported() -> bool:
        return on_device(tf.distribute.get_strategy()) or stock()

    return supported


def _patch(model_class: Any, name: str, ours: Callable[..., Any]) -> None:
    def patched(stock: Stock) -> Stock:
        @functools.wraps(stock)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return ours(stock, self, *args, **kwargs) if on_device(strategy_of(self)) else stock(self, *args, **kwargs)

        return method

    replace_in(model_class, name, patched, by=__name__)


def iterators_in_scope() -> contextlib.AbstractContextManager[None]:
    """Context of a strategy's scope: in that of Keras 2's own loops, which enter it anew, they read their data."""
    return stock_iterators() if running_model.get() is not None else contextlib.nullcontext()


def _make(attribute: str, kind: StepKind, stock: Stock, model: Any, force: bool = False) -> Any:
    """Replaces `make_train_function` and its kin."""
    now = getattr(model, attribute)
    if model.run_eagerly:
        return stock(model, force or isinstance(now, Keras2StepFunction))
    if force or not isinstance(now, Keras2StepFunction):
        setattr(model, attribute, Keras2StepFunction(model, kind, replica_count))
    return getattr(model, attribute)


def _run(name: str, stock: Stock, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Replaces `fit`, `evaluate`, `predict` and the methods for one batch."""
    for attribute in _KINDS:
        if getattr(type(model), f"make_{attribute}") is not getattr(tf_keras().Model, f"make_{attribute}"):
            raise RuntimeError(OVERRIDDEN.format(function=f"make_{attribute}", name=model.name))
    assign_from_scopes(model)
    bound = inspect.signature(stock).bind(model, *args, **kwargs)
    with InterruptibleCall(), context_value(running_model, model):
        if model.run_eagerly:
            check_eager_model(model)
            flush_variables()
            with functions_run_eagerly(eager_step):
                return stock(*bound.args, **bound.kwargs)
        one_batch = name.endswith("_on_batch")
        synced = contextlib.nullcontext() if one_batch else variable_sync(bound.arguments)
        with synced, _batches_of_all_replicas(model, one_batch):
            try:
                return stock(*bound.args, **bound.kwargs)
            finally:
                flush_variables()
                _forget_data(model, name)


def _metrics_from_host(stock: Stock, model: Any, logs: Any) -> Any:
    """Replaces the method by which Keras 2's loops read the logs of an epoch from the variables of the metrics."""
    if model.run_eagerly:
        return stock(model, logs)
    flush_variables()
    # The variables on the host are those of replica 0; what the steps returned is reduced over replicas.
    return logs if replica_count(model) > 1 else stock(model, logs)


@contextlib.contextmanager
def _batches_of_all_replicas(model: Any, one_batch: bool) -> Iterator[None]:
    """Context in which Keras 2's loop counts the batches of all replicas in an execution, as it does in an epoch.

    Raises:
        EmulationError: for one batch, or steps that Keras 2 counts itself, where the model runs as several replicas.
    """
    replicas = replica_count(model)
    if replicas == 1:
        yield
        return
    _check_replicated(model, replicas, one_batch)
    counting, now = _counting.get(), steps_per_execution(model)
    # Within its own loop a model's last execution of an epoch may have fewer batches.
    wanted = next((count for each, count in counting if each is model), now * replicas)
    model.steps_per_execution = wanted
    try:
        with context_value(_counting, (*counting, (model, wanted))):
            yield
    finally:
        model.steps_per_execution = now


def _check_replicated(model: Any, replicas: int, one_batch: bool) -> None:
    if one_batch:
        raise EmulationError(
            f"A model that runs as {replicas} replicas takes {replicas} batches a step, one for each. Received: one "
            "batch. Use `fit`, `evaluate` or `predict`, or a device with fewer IPUs."
        )
    if model.autotune_steps_per_execution:
        raise EmulationError(
            f"A model that runs as {replicas} replicas has a number of steps per execution. Received: "
            "steps_per_execution='auto'. Compile the model with a number."
        )


def _forget_data(model: Any, name: str) -> None:
    """Drops what a method has read of its data; a callback of `fit` may have called it, whose own goes on."""
    function = getattr(model, _FUNCTIONS.get(name, ""), None)
    if isinstance(function, Keras2StepFunction):
        function.forget_data()
