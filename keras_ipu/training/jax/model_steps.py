"""A Keras model's train, test or predict step on JAX, as `JaxStep` takes it: state and batch in, outputs and state out.

model_step       train_step of a batch ──► gradients ──► GradientUpdates.apply ──► Keras's stateless_apply
remainder_step   ... of several batches, whose weighted gradients make one weight update
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ipu_tf._loops.jax_step import GradientUpdates
from keras_ipu.stock import models as keras_models
from keras_ipu.training.common.partial_batches import GradientSum, gradient_weights
from keras_ipu.training.common.step_function import StepKind
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.jax.captured_gradients import step_capture

State = tuple[list[Any], ...]
Step = Callable[[State, Any, GradientUpdates], tuple[Any, State]]
Combine = Callable[[list[Any]], list[Any] | None]
"""Takes the gradients of a batch; returns those of the weight update, or None if further batches belong to it."""


def model_step(model: Any, kind: StepKind) -> Step:
    """Returns a model's step for one batch; a train step updates weights through `GradientUpdates`."""
    if not kind.training:
        return _plain_step(model, kind)

    def step(state: State, batch: Any, updates: GradientUpdates) -> tuple[Any, State]:
        with _weight_update(model.optimizer, updates, lambda gradients: gradients):
            return _with_lists(model.train_step(state, batch))

    return step


def remainder_step(model: Any, kind: StepKind, split: StepSplit) -> Step:
    """Returns a model's step for a tuple of batches, whose gradients make one weight update.

    Args:
        model: the model.
        kind: which of its steps.
        split: of full steps.
    """
    plain = None if kind.training else _plain_step(model, kind)

    def steps(state: State, batches: Any, updates: GradientUpdates) -> tuple[Any, State]:
        if plain is not None:
            return _on_each(lambda now, batch: plain(now, batch, updates), state, batches)
        combined = GradientSum(gradient_weights(batches, split), _scaled)
        with _weight_update(model.optimizer, updates, combined.add):
            return _on_each(model.train_step, state, batches)

    return steps


def _plain_step(model: Any, kind: StepKind) -> Step:
    """Returns a model's test or predict step."""

    def step(state: State, batch: Any, updates: GradientUpdates) -> tuple[Any, State]:
        if not kind.predicts:
            return _with_lists(model.test_step(state, batch))
        outputs, non_trainable = model.predict_step(state, batch)
        return _with_lists((outputs, (state[0], non_trainable)))

    return step


def _scaled(gradient: Any, weight: float) -> Any:
    return gradient if weight == 1 else gradient * weight


@contextlib.contextmanager
def _weight_update(optimizer: Any, updates: GradientUpdates, combine: Combine) -> Iterator[None]:
    """Context in which the optimizer is called once with the gradients of all micro-batches and replicas.

    Args:
        optimizer: the model's optimizer, or None.
        updates: accumulates gradients and sums those of replicas.
        combine: makes the gradients of an update from those of batches.
    """
    with step_capture(optimizer) as apply_with_captured:

        def apply(stock: Any, slots: list[Any], gradients: list[Any], weights: list[Any]) -> Any:
            def update(complete: list[Any]) -> Any:
                return apply_with_captured(lambda: stock(slots, complete, weights))

            combined = combine(gradients)
            return (weights, slots) if combined is None else updates.apply(combined, update, (weights, slots))

        patch = contextlib.nullcontext() if optimizer is None else keras_models.patch_stateless_apply(optimizer, apply)
        with patch:
            yield


def _on_each(step: Callable[[State, Any], Any], state: State, batches: Any) -> tuple[tuple[Any, ...], State]:
    """Runs a step on one batch after the other; returns the outputs of each, and the state."""
    outputs = []
    for batch in batches:
        step_outputs, state = _with_lists(step(state, batch))
        outputs.append(step_outputs)
    return tuple(outputs), state


def _with_lists(result: tuple[Any, Any]) -> tuple[Any, State]:
    """Returns a step's outputs and state, each part of the state as a list."""
    outputs, state = result
    return outputs, tuple(list(part) for part in state)
