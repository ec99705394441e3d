"""Adds up the gradients of a remainder's batches, for each call of an optimizer in a training step.

batch 0    judge.apply  forger.apply         the calls of one place make one update:
batch 1    judge.apply  forger.apply         a mean over the samples of both batches
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipu_tf.emulation import EmulationError
from keras_ipu.training.common.partial_batches import GradientSum

_WITHOUT = (
    "Change the step, or train on data whose batches go round, such as `batch(size, drop_remainder=True)` with a "
    "multiple of the replicas. See docs/partial_batches.md."
)


class UpdateSums:
    """Gradients of a remainder's batches, added up call by call: those of the same place in each batch's step.

    Args:
        model: its name, for errors.
        weights: the factor of each batch's gradients; see `gradient_weights`.
        scaled: multiplies a gradient by a factor.

    >>> sums = UpdateSums("gan", [0.75, 0.25], lambda gradient, weight: gradient * weight)
    >>> sums.start_batch()
    >>> sums.add("sgd", [4.0]), sums.add("adam", [8.0])
    (None, None)
    >>> sums.finish_batch()
    >>> sums.start_batch()
    >>> sums.add("sgd", [8.0]), sums.add("adam", [4.0])
    ([5.0], [7.0])
    >>> sums.finish_batch()
    """

    def __init__(self, model: str, weights: list[float], scaled: Callable[[Any, float], Any]) -> None:
        self._model = model
        self._weights = weights
        self._scaled = scaled
        self._sums: list[GradientSum] = []
        self._expected: list[tuple[Any, ...]] = []
        self._received: list[tuple[Any, ...]] = []
        self._batch = -1

    @property
    def calls(self) -> int:
        """Returns how many calls there were in this batch so far."""
        return len(self._received)

    @property
    def batches(self) -> int:
        """Returns how many batches there are."""
        return len(self._weights)

    def start_batch(self) -> None:
        """Begins with the next batch."""
        self._batch, self._received = self._batch + 1, []

    def add(self, optimizer: Any, gradients: list[Any], variables: Sequence[Any] = ()) -> list[Any] | None:
        """Adds what an optimizer is called with; returns the sums after the last batch, None before.

        Args:
            optimizer: the optimizer.
            gradients: of this batch, None where it has none.
            variables: those that are updated, where they are objects.

        Raises:
            EmulationError: if the first batch had another call here.
        """
        place = self.calls
        self._received.append((optimizer, len(gradients), [id(variable) for variable in variables]))
        if self._batch == 0:
            self._expected.append(self._received[-1])
            self._sums.append(GradientSum(self._weights, self._scaled))
        elif self._received != self._expected[: self.calls]:
            raise self._error()
        return self._sums[place].add(gradients)

    def finish_batch(self) -> None:
        """Checks the calls for a batch.

        Raises:
            EmulationError: if there were fewer than for the first.
        """
        if self._received != self._expected:
            raise self._error()

    def inner_function(self, optimizer: Any) -> EmulationError:
        """Returns the error for a call of an optimizer in a function or a branch, which gradients cannot leave."""
        return EmulationError(
            f"{self._what()} Expected calls of optimizers in `train_step` itself, or in Python functions that it "
            f"calls. Received: a call of {optimizer_name(optimizer)} in a function that is traced for itself, such as "
            "a `tf.function`, `jax.jit`, a branch or a loop, or by a method that was looked up before the step. "
            f"{_WITHOUT}"
        )

    def _error(self) -> EmulationError:
        return EmulationError(
            f"{self._what()} Expected the same calls for each batch: {_listed(self._expected)}, as for the first one. "
            f"Received for batch {self._batch + 1}: {_listed(self._received)}. {_WITHOUT}"
        )

    def _what(self) -> str:
        return (
            f"The last {self.batches} batches make one weight update of {self._model}: each call of an optimizer in "
            "`train_step` gets the gradients of all of them."
        )


def _listed(calls: Sequence[tuple[Any, ...]]) -> str:
    return ", ".join(f"{optimizer_name(optimizer)} with {count} gradients" for optimizer, count, _ in calls) or "none"


def optimizer_name(optimizer: Any) -> str:
    """Returns the name of an optimizer for messages; Keras 2's older ones have none that is public."""
    return str(getattr(optimizer, "name", getattr(optimizer, "_name", optimizer)))
