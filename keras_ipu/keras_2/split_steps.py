"""Weight updates of Keras 2's optimizers, those of `tf_keras.optimizers` and of `tf_keras.optimizers.legacy`.

train_step ──► optimizer.minimize ──► apply_gradients ──► accumulate, sum of replicas ──► apply_gradients, complete

That goes for each call of an optimizer in the step: of the model's, and of all others.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ipu_tf._state.once import first_time
from ipu_tf._training.weight_update import accumulate_and_apply
from ipu_tf.ops.all_to_all_op import all_gather
from keras_ipu.keras_2.watched_optimizers import Apply, updates_of_all
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.common.update_sums import UpdateSums
from keras_ipu.training.tensorflow.remainder_updates import RemainderUpdates

_log = logging.getLogger("ipu_tf")
_WHOLE = ("Adagrad", "Adam", "Adamax", "Ftrl", "Nadam")
"""Older optimizers whose update of a row with a gradient of zero is that of one which a batch does not name."""
_ROWS = (
    "ipu_tf: Keras 2's %s updates only the rows of an embedding that a batch names. On the device all rows are: those "
    "that it does not name have gradients of zero, so what %s keeps of them, such as a momentum, goes on."
)

Step = Callable[[], Any]


def optimizer_state(model: Any) -> list[Any]:
    """Returns the variables of a model's optimizer; of Keras 2's older optimizers `variables` is a method."""
    variables = getattr(getattr(model, "optimizer", None), "variables", ())
    return list(variables() if callable(variables) else variables)


@contextlib.contextmanager
def split_updates(model: Any, split: StepSplit) -> Iterator[None]:
    """Context in which the updates of a step get the gradients of all micro-batches and replicas.

    Args:
        model: of Keras 2; its step may call other optimizers than its own.
        split: of the step.
    """

    def update(optimizer: Any, apply: Apply, gradients: list[Any], variables: list[Any]) -> Any:
        return _accumulate_and_apply(split, optimizer, apply, _dense(optimizer, gradients), variables)

    with updates_of_all(model.optimizer, update):
        yield


@contextlib.contextmanager
def summed_updates(model: Any, weights: list[float], split: StepSplit) -> Iterator[Callable[[Step], Any]]:
    """Context in which the updates of several batches are one, of their weighted gradients, for each call of a step.

    Args:
        model: of Keras 2; its step may call other optimizers than its own.
        weights: the factor of each batch's gradients.
        split: of a step that takes one batch.

    Yields:
        A function that calls the step of the next batch, and returns what that does.
    """
    sums = UpdateSums(model.name, weights, lambda gradient, weight: gradient * tf.cast(weight, gradient.dtype))
    updates = RemainderUpdates(model.name, sums, functools.partial(_accumulate_and_apply, split))

    def update(optimizer: Any, apply: Apply, gradients: list[Any], variables: list[Any]) -> Any:
        updates.update(optimizer, apply, _dense(optimizer, gradients), variables)
        return _iterations(optimizer)

    with updates_of_all(model.optimizer, update):
        yield updates.of_batch


def _accumulate_and_apply(
    split: StepSplit, optimizer: Any, apply: Apply, gradients: list[Any], variables: list[Any]
) -> Any:
    """Applies gradients once they are those of all micro-batches and replicas; returns what an optimizer does."""
    if split.is_trivial:
        return apply(gradients, variables)
    accumulate_and_apply(
        gradients,
        lambda complete: apply(complete, variables),
        split.accumulation_count,
        split.replicas,
        split.reduction,
        lambda position: split.accumulator_dtype(variables, position),
    )
    return _iterations(optimizer)


def _iterations(optimizer: Any) -> Any:
    """Returns an optimizer's count of updates, as its `apply_gradients` does; the older ones create it late."""
    with tf.init_scope():
        return optimizer.iterations


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
