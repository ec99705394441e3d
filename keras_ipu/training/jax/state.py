"""The state of an IPU model on Keras's JAX backend between executions.

Keras keeps one array for each variable, that of replica 0. Each replica has a value of its own, such as BatchNorm's
statistics; they wait here for as long as Keras still has the array that stands for them. What the host writes is
another array, and goes to all replicas.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import jax
import jax.numpy as jnp

from keras_ipu.stock import models as keras_private


def separate(model: Any) -> None:
    """Gives variables of a model that hold one array arrays of their own: a run takes over those that it is given.

    Keras has such variables where, at the end of `fit`, weights are given their averages.
    """
    held: set[int] = set()
    for variable in (*model.variables, *(model.optimizer.variables if model.optimizer else ())):
        array = variable.value
        if id(array) in held:
            variable.assign(jnp.copy(array))
        held.add(id(array))


@dataclasses.dataclass(frozen=True)
class _Kept:
    shown: weakref.ref[Any]
    all: Any


class ReplicaState:
    """What the replicas have of the arrays that Keras was shown."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def shown(self, state: Any, replicas: int) -> Any:
        """The tree of arrays that Keras gets for one whose arrays have a leading axis of replicas."""
        return state if replicas == 1 else jax.tree.map(self._show, state)

    def all_replicas_state(self, state: Any, replicas: int, keep: bool = False) -> Any:
        """The tree of arrays to run on for one that Keras has: where it was shown here, with an axis of replicas.

        Args:
            state: the tree of arrays that Keras has.
            replicas: how many there are.
            keep: whether the arrays are to outlive the run, which takes over those that it is given: it gets copies.
        """
        if not self._kept and not keep:
            return state
        return jax.tree.map(lambda array: self._given(array, replicas, keep), state)

    def _given(self, array: Any, replicas: int, keep: bool) -> Any:
        whole = self._all(array, replicas)
        return jnp.copy(array) if keep and whole is array else whole

    def _show(self, array: Any) -> Any:
        # On replica 0's device alone: `array[0]` would lie on all of them, and go with no array of another device.
        shown = array.addressable_shards[0].data[0]
        key = id(shown)
        self._kept[key] = _Kept(weakref.ref(shown, lambda _: self._kept.pop(key, None)), array)
        return shown

    def _all(self, array: Any, replicas: int) -> Any:
        kept = self._kept.get(id(array))
        if kept is None or kept.shown() is not array or len(kept.all) != replicas or kept.all.is_deleted():
            return array
        return kept.all


class StateCopy:
    """A state that a model's variables hold while the device runs on a copy: callbacks of single steps look at it.

    Args:
        model: the model.
        names: of the parts of the state, as Keras calls them.
        state: lists of arrays by these names.
    """

    def __init__(self, model: Any, names: tuple[str, ...], state: tuple[list[Any], ...]) -> None:
        self._model = model
        self._names = names
        keras_private.restore_state(model, dict(zip(names, state, strict=True)))
        self._held = keras_private.state_of(model, names)

    def merge_callback_writes(self, after: tuple[list[Any], ...]) -> tuple[list[Any], ...]:
        """The state after the run, with what callbacks wrote in the meantime; it is for Keras to keep from now on."""
        keras_private.mark_out_of_date(self._model)
        now = keras_private.state_of(self._model, self._names)
        return tuple(
            [new if held is found else found for new, held, found in zip(*parts, strict=True)]
            for parts in zip(after, self._held, now, strict=True)
        )
