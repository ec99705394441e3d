"""Automatic loss scaling as a pure state transition: no variables, no side effects.

histogram   [gradients below the edge, gradients at or above it] since the last change of the factor
counter     applications since the last time a change was due
factor      what losses are multiplied by
previous    the factor before its last change
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_ipu.optimizers.als_settings import ALSDefaults, standardised_dtype
from keras_ipu.optimizers.cross_replica_optimizer import sum_over_replicas
from keras_ipu.optimizers.gradient_reduction import dense

_LARGEST_HALF = 65504.0


@dataclasses.dataclass(frozen=True)
class ALSState:
    """The state, as tensors: `histogram` float32 [2], `counter` int32, `factor` and `previous` float32."""

    histogram: Any
    counter: Any
    factor: Any
    previous: Any


def factor_update_due(state: ALSState, settings: ALSDefaults) -> Any:
    """Returns whether this application changes the factor: a boolean scalar.

    The counter starts at zero, and zero is no multiple here: the period is `update_frequency` + 1 applications, but 1
    for a frequency of 1.
    """
    if settings.update_frequency == 1:
        return ops.convert_to_tensor(True)
    positive = ops.greater(state.counter, 0)
    return ops.logical_and(positive, ops.equal(state.counter % settings.update_frequency, 0))


def observed(
    state: ALSState, settings: ALSDefaults, grads: Sequence[Any], captured_grads: Mapping[str, Any] | None
) -> ALSState:
    """Returns the state with the statistics of scaled and captured float16 gradients added."""
    due = factor_update_due(state, settings)
    keep = ops.cast(1.0 - settings.lpf_alpha, "float32")
    counts = ops.zeros((2,), "float32")
    if not settings.captured_grads_only:
        counts = counts + keep * _counts(grads, settings)
    # Gradients of weights are those of all replicas here, captured ones are not: replicas would scale differently.
    captured = sum_over_replicas(_counts(keras.tree.flatten(dict(captured_grads or {})), settings))
    # The filter smooths what is carried on; where the factor changes now, captured gradients count in full.
    counts = counts + captured * ops.where(due, 1.0, keep)
    if not settings.accumulate_statistics_over_update_period:
        counts = ops.where(due, counts, ops.zeros_like(counts))
    return dataclasses.replace(state, histogram=state.histogram + counts)


def advanced(state: ALSState, settings: ALSDefaults) -> ALSState:
    """Returns the state after gradients were applied: the factor may have changed."""
    due = factor_update_due(state, settings)
    factor = ops.where(due, _next_factor(state, settings), state.factor)
    return ALSState(
        histogram=ops.where(due, ops.zeros_like(state.histogram), state.histogram),
        counter=ops.where(due, ops.zeros_like(state.counter), state.counter + 1),
        factor=factor,
        previous=ops.where(ops.equal(factor, state.factor), state.previous, state.factor),
    )


def saturated(grads: Sequence[Any]) -> list[Any]:
    """Replaces infinite float16 elements by the largest float16 of their sign, as an IPU saturates."""
    return [
        ops.clip(dense(grad), -_LARGEST_HALF, _LARGEST_HALF)
        if grad is not None and standardised_dtype(grad) == "float16"
        else grad
        for grad in grads
    ]


def _next_factor(state: ALSState, settings: ALSDefaults) -> Any:
    total = ops.sum(state.histogram)
    ratio = state.histogram[1] / ops.where(total > 0.0, total, 1.0)
    increase = ops.cast(settings.increase_factor, "float32")
    candidate = ops.where(ratio > settings.ratio_threshold, state.factor / increase, state.factor * increase)
    fits = ops.logical_and(candidate < settings.max_loss_scaling_factor, candidate >= 1.0)
    return ops.where(ops.logical_and(fits, ops.isfinite(candidate)), candidate, state.factor)


def _counts(grads: Sequence[Any], settings: ALSDefaults) -> Any:
    """float32 [2]: how many elements of float16 gradients are below the edge, and how many are not, NaN included."""
    counts = ops.zeros((2,), "float32")
    for grad in (dense(grad) for grad in grads if grad is not None):
        if standardised_dtype(grad) == "float16":
            below = ops.absolute(ops.cast(grad, "float32")) < settings.histogram_bin_edge
            fine = ops.sum(ops.cast(below, "float32"))
            counts = counts + ops.stack([fine, ops.cast(ops.size(grad), "float32") - fine])
    return counts
