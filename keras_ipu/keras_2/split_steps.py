"""Weight updates of Keras 2's optimizers, those of `tf_keras.optimizers` and of `tf_keras.optimizers.legacy`.

train_step ──► optimizer.minimize ──► apply_gradients ──► accumulate, sum of replicas ──► apply_gradients, complete
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ipu_tf._state.once import first_time
from ipu_tf._training.weight_update import accumulate_and_apply
from ipu_tf.ops.all_to_all_op import all_gather
from keras_ipu.stock.attributes import own_attribute
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.common.update_sums import UpdateSums

_log = logging.getLogger("ipu_tf")
_WHOLE = ("Adagrad", "Adam", "Adamax", "Ftrl", "Nadam")
"""Older optimizers whose update of a row with a gradient of zero is that of one which a batch does not name."""
_ROWS = (
    "ipu_tf: Keras 2's %s updates only the rows of an embedding that a batch names. On the device all rows are: those "
    "that it does not name have gradients of zero, so what %s keeps of them, such as a momentum, goes on."
)

Apply = Callable[[list[Any]], Any]
"""Applies complete gradients."""


def optimizer_state(model: Any) -> list[Any]:
    """Returns the variables of a model's optimizer; of Keras 2's older optimizers `variables` is a method."""
    variables = getattr(getattr(model, "optimizer", None), "variables", ())
    return list(variables() if callable(variables) else variables)


@contextlib.contextmanager
def split_updates(optimizer: Any, split: StepSplit) -> Iterator[None]:
    """Context in which an optimizer's updates get the gradients of all micro-batches and replicas.

    Args:
        optimizer: of Keras 2; None for a model without one.
        split: of the step.
    """
    if optimizer is None:
        yield
        return

    def update(apply: Apply, gradients: list[Any], variables: list[Any]) -> None:
        gradients = _dense(optimizer, gradients)
        if split.is_trivial:
            apply(gradients)
            return
        accumulate_and_apply(
            gradients,
            apply,
            split.accumulation_count,
            split.replicas,
            split.reduction,
            lambda position: split.accumulator_dtype(variables, position),
        )

    with _replaced(optimizer, update):
        yield


@contextlib.contextmanager
def summed_updates(
    model: Any, weights: list[float], split: StepSplit
) -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """Context in which the updates of several batches are one, of their weighted gradients, for each call of a step.

    Args:
        model: of Keras 2, whose own optimizer it is about, if it has one.
        weights: the factor of each batch's gradients.
        split: of a step that takes one batch.

    Yields:
        A function that gives a context for the step of the next batch.
    """
    optimizer = model.optimizer
    sums = UpdateSums(model.name, weights, lambda gradient, weight: gradient * tf.cast(weight, gradient.dtype))

    def update(apply: Apply, gradients: list[Any], variables: list[Any]) -> None:
        complete = sums.add(optimizer, _dense(optimizer, gradients), variables)
        if complete is not None:
            accumulate_and_apply(complete, apply, 1, split.replicas, split.reduction)

    @contextlib.contextmanager
    def one_batch() -> Iterator[None]:
        sums.start_batch()
        yield
        sums.finish_batch()

    with contextlib.nullcontext() if optimizer is None else _replaced(optimizer, update):
        yield one_batch


def _dense(optimizer: Any, gradients: list[Any]) -> list[Any]:
    """Returns gradients whose repeated rows are added up, as Keras 2 does, in tensors of fixed shape."""
    if any(isinstance(each, tf.IndexedSlices) for each in gradients) and _updates_named_rows_alone(optimizer):
        name = type(optimizer).__name__
        if first_time("rows that a batch does not name", name):
            _log.warning(_ROWS, name, name)
    return [tf.convert_to_tensor(each) if isinstance(each, tf.IndexedSlices) else each for each in gradients]


def _updates_named_rows_alone(optimizer: Any) -> bool:
    """Returns whether an older optimizer leaves alone what it keeps of rows that a batch does not name."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    kind = type(inner).__name__ if type(inner).__module__.startswith("tf_keras.") else "one of the user's"
    linear = kind == "SGD" and not inner.get_config().get("momentum")
    return hasattr(inner, "_resource_apply_sparse") and not linear and kind not in _WHOLE


@contextlib.contextmanager
def _replaced(optimizer: Any, ours: Callable[[Apply, list[Any], list[Any]], None]) -> Iterator[None]:
    """Context in which `optimizer.apply_gradients` is `ours(apply, gradients, variables)`."""
    stock = optimizer.apply_gradients

    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> None:
        gradients, variables = (list(each) for each in zip(*grads_and_vars, strict=True))

        def apply(complete: list[Any]) -> Any:
            return stock(list(zip(complete, variables, strict=True)), *args, **kwargs)

        ours(apply, gradients, variables)

    with own_attribute(optimizer, "apply_gradients", apply_gradients):
        yield


@contextlib.contextmanager
def metrics_in_step(model: Any, split: StepSplit) -> Iterator[None]:
    """Context in which a full step is traced: metrics count the batches of all replicas, unless a method is set.

    Args:
        model: the model, whose metrics are built.
        split: of the step.
    """
    if split.all_replicas == 1 or not split.joint_metrics:
        yield
        return
    metrics = {id(metric): metric for metric in model.metrics}.values()
    stock = {id(metric): metric.update_state for metric in metrics}
    for metric in metrics:
        # Bypasses Keras's own `__setattr__`; Keras itself sets the method on the object.
        object.__setattr__(metric, "update_state", _gathering(metric.update_state, split.all_replicas))
    try:
        yield
    finally:
        for metric in metrics:
            object.__setattr__(metric, "update_state", stock[id(metric)])


def _gathering(stock: Callable[..., Any], replicas: int) -> Callable[..., Any]:
    """Returns an `update_state` that takes the arguments of one replica after the other."""

    def update_state(*args: Any, **kwargs: Any) -> None:
        gathered = [_of_each_replica(leaf, replicas) for leaf in tf.nest.flatten((args, kwargs))]
        for own in zip(*gathered, strict=True):
            arguments, named = tf.nest.pack_sequence_as((args, kwargs), own)
            stock(*arguments, **named)

    return update_state


def _of_each_replica(leaf: Any, replicas: int) -> list[Any]:
    return tf.unstack(all_gather(leaf, replicas)) if tf.is_tensor(leaf) else [leaf] * replicas
