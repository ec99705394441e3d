"""A Keras model's train, test or predict step on TensorFlow, whose optimizer gets the gradients of a weight update.

    model_step       train_step of a batch ──► gradients ──► accumulate, sum of replicas ──► Keras's apply
    remainder_step   ... of several batches, whose weighted gradients make one weight update

That goes for each call of an optimizer in the step: of the model's, and where steps are split, of all others.
Gradients that layers capture in the step are passed to optimizers that take `captured_grads`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ipu_tf._training.weight_update import accumulate_and_apply
from keras_ipu.optimizers.inner_optimizer_calls import takes_captured_grads
from keras_ipu.stock import models as keras_models
from keras_ipu.training.common.optimizer_calls import updates_of_all, within_call
from keras_ipu.training.common.partial_batches import gradient_weights
from keras_ipu.training.common.step_function import StepKind
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.common.update_sums import UpdateSums
from keras_ipu.training.tensorflow.first_trace import slots_created
from keras_ipu.training.tensorflow.remainder_updates import Apply, RemainderUpdates, Update
from keras_ipu.training.tensorflow.summed_gradients import sum_repeated_rows

Step = Callable[[Any], Any]


def model_step(model: Any, kind: StepKind, split: StepSplit) -> Step:
    """Returns a model's step for one batch; its optimizer gets the gradients of all micro-batches and replicas."""
    if not kind.training:
        return _plain_step(model, kind)

    def update(optimizer: Any, *call: Any) -> None:
        _accumulate_and_apply(optimizer, split, *call)

    def step(batch: Any) -> Any:
        with _weight_updates(model.optimizer, split, update, update):
            return _captured_step(model, batch)

    return step


def remainder_step(model: Any, kind: StepKind, split: StepSplit) -> Step:
    """Returns a model's step for a tuple of batches, whose gradients make one weight update.

    Args:
        model: the model.
        kind: which of its steps.
        split: of full steps.
    """
    plain = None if kind.training else _plain_step(model, kind)
    one_batch = dataclasses.replace(split, accumulation_count=1)

    def complete(optimizer: Any, *call: Any) -> None:
        _accumulate_and_apply(optimizer, one_batch, *call)

    def steps(batches: Any) -> Any:
        if plain is not None:
            return tuple(map(plain, batches))
        sums = UpdateSums(model.name, gradient_weights(batches, split), _scaled)
        updates = RemainderUpdates(model.name, sums, complete)
        with _weight_updates(model.optimizer, split, updates.update, updates.unseen_update):
            return tuple(updates.of_batch(functools.partial(_captured_step, model, batch)) for batch in batches)

    return steps


def _plain_step(model: Any, kind: StepKind) -> Step:
    """Returns a model's test or predict step; the method is looked up when the step is traced."""
    return lambda batch: getattr(model, f"{kind.name}_step")(batch)


def _captured_step(model: Any, batch: Any) -> Any:
    """Calls `train_step`, with the gradients that its layers capture passed to an optimizer that takes them."""
    with _captured_for(model.optimizer):
        return model.train_step(batch)


@contextlib.contextmanager
def _weight_updates(optimizer: Any, split: StepSplit, update: Update, unseen: Update) -> Iterator[None]:
    """Context in which `update` replaces the updates of the model's optimizer; where steps are split, of all others.

    Args:
        optimizer: of the model, or None.
        split: of the step.
        update: gets an optimizer, its update, gradients and variables.
        unseen: gets those of calls that are seen within `apply` only.
    """

    def own(*call: Any) -> None:
        with within_call():
            update(optimizer, *call)

    with contextlib.ExitStack() as stack:
        if optimizer is not None:
            stack.enter_context(keras_models.applying(optimizer, own))
        if not split.is_trivial:
            stack.enter_context(updates_of_all(update, unseen))
        yield


@contextlib.contextmanager
def _captured_for(optimizer: Any) -> Iterator[None]:
    """Context in which `optimizer.apply_gradients` gets `captured_grads`, if it takes them."""
    from ipu_tf.eager import backprop

    with backprop.GradientCaptureContext() as context:
        if optimizer is None or not takes_captured_grads(optimizer):
            yield
            # A context is open until its gradients are asked for.
            _ = context.captured_gradients
            return
        stock, others = optimizer.apply_gradients, vars(optimizer).get("apply_gradients")

        def apply_gradients(*args: Any, **kwargs: Any) -> Any:
            return stock(*args, **{"captured_grads": context.captured_gradients, **kwargs})

        # Keras's training step does not pass captured gradients: it calls the method found on the object, which may
        # already be replaced to split the weight update.
        optimizer.apply_gradients = apply_gradients
        try:
            yield
        finally:
            if others is None:
                del optimizer.apply_gradients
            else:
                optimizer.apply_gradients = others


def _scaled(gradient: Any, weight: float) -> tf.Tensor:
    return tf.convert_to_tensor(gradient) * tf.cast(weight, gradient.dtype)


def _accumulate_and_apply(optimizer: Any, split: StepSplit, stock: Apply, gradients: list[Any], variables: Any) -> None:
    variables = None if variables is None else list(variables)
    gradients = sum_repeated_rows(optimizer, gradients, variables)
    if (
        variables is not None
        and not optimizer.built
        and not (split.is_trivial and keras_models.computes_slots(optimizer))
    ):
        with slots_created(optimizer), keras_models.scope_of_optimizer(optimizer):
            optimizer.build(variables)
    if split.is_trivial:
        stock(gradients, variables)
        return
    accumulate_and_apply(
        gradients,
        lambda complete: stock(complete, variables),
        split.accumulation_count,
        split.replicas,
        split.reduction,
        lambda position: split.accumulator_dtype(variables, position),
        [getattr(variable, "path", variable.name) for variable in variables or ()],
    )
