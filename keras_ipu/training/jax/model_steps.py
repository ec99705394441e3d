"""A Keras model's train, test or predict step on JAX, as `JaxStep` takes it: state and batch in, outputs and state out.

model_step       train_step of a batch ──► gradients ──► GradientUpdates.apply ──► Keras's stateless_apply
remainder_step   ... of several batches, whose weighted gradients make one weight update

That goes for each call of an optimizer in the step: of the model's, and of all others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ipu_tf._loops.jax_step import GradientUpdates
from keras_ipu.stock import models as keras_models
from keras_ipu.training.common.optimizer_calls import optimizer_calls, within_call
from keras_ipu.training.common.partial_batches import gradient_weights
from keras_ipu.training.common.step_function import StepKind
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.common.update_sums import UpdateSums
from keras_ipu.training.jax.captured_gradients import step_capture
from keras_ipu.training.jax.replayed_steps import ReplayedSteps

State = tuple[list[Any], ...]
Step = Callable[[State, Any, GradientUpdates], tuple[Any, State]]
Combine = Callable[[Any, Callable[[list[Any]], Any], list[Any], Any], Any]
"""Gets an optimizer, its update, gradients, and weights and slots; returns weights and slots after the call."""


def model_step(model: Any, kind: StepKind) -> Step:
    """Returns a model's step for one batch; a train step updates weights through `GradientUpdates`."""
    if not kind.training:
        return _plain_step(model, kind)

    def step(state: State, batch: Any, updates: GradientUpdates) -> tuple[Any, State]:
        with _weight_updates(model.optimizer, _over_replicas(updates)):
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
        weights, known = gradient_weights(batches, split), list[Any]()
        while True:
            replayed = ReplayedSteps(UpdateSums(model.name, weights, _scaled), known)

            def one(now: State, batch: Any, replayed: ReplayedSteps = replayed) -> Any:
                with _weight_updates(model.optimizer, _summed(replayed, updates)):
                    return model.train_step(now, batch)

            outputs, after = replayed.run(one, state, batches)
            if replayed.complete:
                return outputs, after

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


def _over_replicas(updates: GradientUpdates) -> Combine:
    return lambda optimizer, update, gradients, unchanged: updates.apply(gradients, update, unchanged)


def _summed(replayed: ReplayedSteps, updates: GradientUpdates) -> Combine:
    def combine(optimizer: Any, update: Callable[[list[Any]], Any], gradients: list[Any], unchanged: Any) -> Any:
        def over_replicas(complete: list[Any]) -> Any:
            return updates.apply(complete, update, unchanged)

        return replayed.apply(optimizer, over_replicas, gradients, unchanged)

    return combine


@contextlib.contextmanager
def _weight_updates(optimizer: Any, combine: Combine) -> Iterator[None]:
    """Context in which optimizers are called once with the gradients of all micro-batches and replicas.

    Args:
        optimizer: the model's optimizer, or None; it gets captured gradients if it takes them.
        combine: what is done with a call.
    """
    with step_capture(optimizer) as apply_with_captured, contextlib.ExitStack() as stack:

        def own(stock: Any, slots: list[Any], gradients: list[Any], weights: list[Any]) -> Any:
            def update(complete: list[Any]) -> Any:
                return apply_with_captured(lambda: stock(slots, complete, weights))

            with within_call():
                return combine(optimizer, update, gradients, (weights, slots))

        def other(each: Any, stock: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
            slots, weights = list(optimizer_variables), list(trainable_variables)
            return combine(each, lambda complete: stock(slots, complete, weights), list(grads), (weights, slots))

        def unseen(each: Any, stock: Any, grads: Any, trainable_variables: Any = None) -> Any:
            # Of a `stateless_apply` that was looked up before: it keeps what `apply` assigns, and returns that.
            return combine(each, lambda complete: stock(complete, trainable_variables), list(grads), None)

        if optimizer is not None:
            stack.enter_context(keras_models.patch_stateless_apply(optimizer, own))
        stack.enter_context(optimizer_calls({"stateless_apply": other, "apply": unseen}))
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
