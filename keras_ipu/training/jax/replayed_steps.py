"""Steps of a remainder's batches on JAX, traced once for each update: gradients of later ones may depend on it.

    first time     judge: gradients of all batches ──► update
    second time    judge: that update, for every batch ──► forger: gradients of all batches ──► update

Steps have no effects, so that XLA drops what is not used, and computes what is the same once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.extend.core import get_opaque_trace_state

from keras_ipu.training.common.update_sums import UpdateSums

State = tuple[list[Any], ...]
Update = Callable[[list[Any]], Any]
"""Gives weights and slots after an update, from the gradients of all batches."""

_THREADED = (1, 3)
"""Parts of the state that one batch passes to the next: others than the weights, and metrics."""


class ReplayedSteps:
    """One of the times that the steps are traced.

    Args:
        sums: of the gradients, new ones each time.
        known: weights and slots after each update that is known; the next one is added.
    """

    def __init__(self, sums: UpdateSums, known: list[Any]) -> None:
        self._sums = sums
        self._known = known
        self._before = len(known)
        self._trace = _trace_state()

    @property
    def complete(self) -> bool:
        """Returns whether all updates are known, so that this was the last time."""
        return len(self._known) >= self._sums.calls

    def run(self, step: Callable[[State, Any], Any], state: State, batches: Sequence[Any]) -> tuple[Any, State]:
        """Runs the steps; returns the outputs of each, and the state after the last one."""
        outputs, now = [], state
        for batch in batches:
            self._sums.start_batch()
            step_outputs, after = step(now if not self._before else _begun(state, now), batch)
            self._sums.finish_batch()
            outputs.append(step_outputs)
            now = tuple(list(part) for part in after)
        return tuple(outputs), now

    def apply(self, optimizer: Any, update: Update, gradients: list[Any], unchanged: Any) -> Any:
        """Returns weights and slots after a call of an optimizer; unchanged ones where its update is not known yet.

        Args:
            optimizer: the optimizer.
            update: its update.
            gradients: of this batch.
            unchanged: weights and slots before it; None if the update assigns those after it.

        Raises:
            EmulationError: if there are several batches, for an update that assigns, and within a function that JAX
                traces for itself.
        """
        if self._sums.batches > 1 and (unchanged is None or _trace_state() != self._trace):
            raise self._sums.inner_function(optimizer)
        place, complete = self._sums.calls, self._sums.add(optimizer, gradients)
        if place < self._before:
            return self._known[place]
        later = place > self._before and self._sums.batches > 1
        if complete is None or later:
            return unchanged
        self._known.append(update(complete))
        return self._known[-1]


def _trace_state() -> Any:
    """Returns JAX's state of tracing: another one within each function that JAX traces."""
    return get_opaque_trace_state(convention="nnx")


def _begun(first: State, now: State) -> State:
    """Returns the state that a batch begins with: the weights and slots before all updates."""
    return tuple(now[place] if place in _THREADED else first[place] for place in range(len(now)))
