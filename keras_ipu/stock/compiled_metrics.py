"""Private API of Keras's metrics and compiled losses: where they create their variables, update them, and add up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_ipu.stock.attributes import own_attribute

StockUpdate = Callable[..., Any]
"""`update_state` of a metric, bound."""

_PARTS = ("_compile_metrics", "_compile_loss")
"""What `compile` was given, as Keras keeps it: objects with metrics, which they make when they are built."""
_KERAS_METRICS = "keras.src.metrics."
_SUMS = (
    *("total", "count", "accumulator", "total_cm"),
    *("true_positives", "true_negatives", "false_positives", "false_negatives", "intermediate_weights"),
    *("num_samples", "squared_sum", "sum", "total_mse"),
)
"""Attributes with variables of Keras's own metrics. Each holds a sum over samples."""


@contextlib.contextmanager
def metrics_built_in(model: Any, scope: Callable[[], contextlib.AbstractContextManager[Any]]) -> Iterator[None]:
    """Context in which metrics and losses that `compile` was given build themselves in a scope.

    Keras builds them in the first step, when it knows the shapes of targets and predictions.

    Args:
        model: compiled or not.
        scope: makes the context in which their variables are created.
    """
    with contextlib.ExitStack() as stack:
        for part in _unbuilt(model):
            stack.enter_context(own_attribute(part, "build", _in_scope(part.build, scope)))
        yield


def _in_scope(build: Callable[..., Any], scope: Callable[[], contextlib.AbstractContextManager[Any]]) -> Any:
    def within(*arguments: Any) -> Any:
        with scope():
            return build(*arguments)

    return within


@contextlib.contextmanager
def metric_updates_replaced(model: Any, update: Callable[..., None]) -> Iterator[None]:
    """Context in which each metric of a model updates itself by `update(metric, stock, *args, **kwargs)`.

    Metrics that a replaced update calls itself, such as parts of a metric, are left alone.

    Args:
        model: the model; its own metrics, those of its layers, and those that `compile` was given.
        update: gets the metric, its `update_state`, and the arguments.
    """
    with contextlib.ExitStack() as stack:
        replaced = _Updates(update, stack)
        replaced.replace(_metrics_of(model))
        for part in _unbuilt(model):
            stack.enter_context(own_attribute(part, "build", replaced.after(part.build, part)))
        yield


@contextlib.contextmanager
def batches_counted_alike(model: Any) -> Iterator[None]:
    """Context in which the losses that a model shows for each of its outputs are means over batches of any size.

    Keras weights them by the batch's static size. Where sizes differ Keras on TensorFlow has none; a traced step has.

    Args:
        model: compiled or not.
    """
    loss = getattr(model, "_compile_loss", None)
    with contextlib.ExitStack() as stack:
        if loss is not None:
            replaced = _Updates(_without_weight, stack)
            replaced.replace(loss.metrics)
            if not loss.built:
                stack.enter_context(own_attribute(loss, "build", replaced.after(loss.build, loss)))
        yield


def _without_weight(metric: Any, stock: StockUpdate, value: Any, sample_weight: Any = None) -> None:
    stock(value)


class _Updates:
    """Replaces `update_state` of metrics, each once, until a stack is closed."""

    def __init__(self, update: Callable[..., None], stack: contextlib.ExitStack) -> None:
        self._update = update
        self._stack = stack
        self._replaced: set[int] = set()
        self._running = False

    def replace(self, metrics: list[Any]) -> None:
        """Replaces the updates of those metrics that are not replaced yet."""
        for metric in metrics:
            if id(metric) not in self._replaced:
                self._replaced.add(id(metric))
                ours = self._updating(metric, metric.update_state)
                self._stack.enter_context(own_attribute(metric, "update_state", ours))

    def after(self, build: Callable[..., Any], part: Any) -> Callable[..., Any]:
        """Returns a `build` after which the metrics that it made are replaced as well."""

        def built(*arguments: Any) -> Any:
            result = build(*arguments)
            self.replace(part.metrics)
            return result

        return built

    def _updating(self, metric: Any, stock: StockUpdate) -> Callable[..., Any]:
        def update_state(*args: Any, **kwargs: Any) -> Any:
            if self._running:
                return stock(*args, **kwargs)
            self._running = True
            try:
                return self._update(metric, stock, *args, **kwargs)
            finally:
                self._running = False

        return update_state


def with_keras_mask(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a changed tensor, with its mask changed likewise if it has one."""
    changed, mask = change(value), getattr(value, "_keras_mask", None)
    if mask is not None:
        changed._keras_mask = change(mask)
    return changed


def has_sums(metric: Any) -> bool:
    """Returns whether all state of a metric is known to be sums over samples.

    It is that of Keras's own metrics, of subclasses that add no variables, and of metrics made of such ones alone.
    Variables do not say it themselves: a metric's are made with `aggregation="sum"` whatever they hold.

    Args:
        metric: one of Keras's or of the user's; built, if it makes its variables late.
    """
    own = [variable for variable in metric._variables if id(variable) not in _sums_of(metric)]
    return not own and all(has_sums(part) for part in metric._metrics)


def _sums_of(metric: Any) -> set[int]:
    kinds = (kind for kind in type(metric).__mro__ if kind is not keras.metrics.Metric)
    if not any(kind.__module__.startswith(_KERAS_METRICS) for kind in kinds):
        return set()
    return {id(vars(metric).get(name)) for name in _SUMS}


def _metrics_of(model: Any) -> list[Any]:
    """Returns all metrics of a model: a subclass's `metrics` may leave some out."""
    parts = [part for name in _PARTS if (part := getattr(model, name, None)) is not None]
    own = [metric for layer in model._flatten_layers() for metric in layer._metrics]
    found = [getattr(model, "_loss_tracker", None), *own, *(metric for part in parts for metric in part.metrics)]
    return [metric for metric in (*found, *model.metrics) if metric is not None and metric not in parts]


def _unbuilt(model: Any) -> list[Any]:
    parts = (getattr(model, name, None) for name in _PARTS)
    return [part for part in parts if part is not None and not part.built]
