"""Gradient accumulation and reduction over replicas in JAX steps.

iteration      0      1      2      3      4     ...      with 3 micro-batches an update
accumulator    g0     +g1    +g2    g3     +g4
update                       *                            of all replicas' accumulators
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.program.collectives import all_reduce_each
from ipu_tf.device.program.program import Types


@dataclasses.dataclass(frozen=True)
class AccumulationSettings:
    """Gradient accumulation settings of a loop.

    Attributes:
        accumulation_count: iterations to an update.
        reduction: how their gradients are combined: "SUM", "MEAN" or "RUNNING_MEAN". Those of replicas are summed.
        accumulators: shape and dtype of what each gradient is accumulated in; empty for one iteration to an update.
        replicas: how many replicas there are.
        divisor: what the sum over replicas is divided by: the number of replicas that a strategy has in sync, by which
            Keras divides losses on TensorFlow.
    """

    accumulation_count: int = 1
    reduction: str = "SUM"
    accumulators: Types = ()
    replicas: int = 1
    divisor: int = 1


class GradientUpdates:
    """Weight updates of one iteration: accumulates gradients, applies them in the last iteration of each group.

    Args:
        rule: how they make updates.
        iteration: the iteration's number, `int32[]`.
        accumulators: what was accumulated so far; those after this iteration when `apply` was called.
    """

    def __init__(self, rule: AccumulationSettings, iteration: Any, accumulators: Sequence[Any]) -> None:
        self._rule = rule
        self._number = iteration % rule.accumulation_count
        self.accumulators = list(accumulators)

    def apply(self, gradients: Sequence[Any], update: Callable[[list[Any]], Any], unchanged: Any) -> Any:
        """Updates a state in the last iteration of each group.

        Args:
            gradients: of this iteration on this replica.
            update: gives the new state, from the gradients of all iterations of the group and all replicas.
            unchanged: the state as it is: arrays in the structure of what `update` gives.

        Returns:
            The state, new or as it was.
        """

        def complete(values: Sequence[Any]) -> Any:
            summed = all_reduce_each(values, "ADD", self._rule.replicas)
            if self._rule.divisor > 1:
                summed = [value / jnp.asarray(self._rule.divisor, value.dtype) for value in summed]
            return cast_to_state_dtypes(update(summed), unchanged)

        if self._rule.accumulation_count == 1:
            return complete(gradients)
        self.accumulators = [self._added(*pair) for pair in zip(self.accumulators, gradients, strict=True)]
        due = self._number == self._rule.accumulation_count - 1
        return lax.cond(due, lambda values: complete(values), lambda values: unchanged, self.accumulators)

    def _added(self, before: jax.Array, gradient: Any) -> jax.Array:
        """Adds a gradient to an accumulator, which is reset at the start of each group."""
        value = jnp.asarray(gradient, before.dtype)
        # A number of micro-batches is exact in float32, not in half precision.
        position = jnp.asarray(self._number, jnp.float32)
        if self._rule.reduction == "MEAN":
            value = value * jnp.asarray(1.0 / self._rule.accumulation_count, value.dtype)
        if self._rule.reduction == "RUNNING_MEAN":
            share = 1 / (position + 1)
            before = before * jnp.asarray(position * share, before.dtype)
            value = value * jnp.asarray(share, value.dtype)
        return jnp.where(self._number == 0, value, before + value)


def cast_to_state_dtypes(after: Any, before: Any) -> Any:
    """Casts new values of a state to the state's dtypes.

    Raises:
        ValueError: if they have other shapes, or there are not as many.
    """
    wanted, found = str(jax.tree.structure(before)), str(jax.tree.structure(after))
    if found != wanted:
        raise ValueError(f"Expected a state of {wanted}. Received: {found}.")

    def same(new: Any, old: Any) -> Any:
        if jnp.shape(new) != jnp.shape(old):
            raise ValueError(f"The state has an array of shape {jnp.shape(old)}. Received for it: {jnp.shape(new)}.")
        return jnp.asarray(new, old.dtype)

    return jax.tree.map(same, after, before)
