"""State of a model's replicas between executions, on Keras's JAX back end.

Keras keeps one array for each variable, that of replica 0. Each replica has a value of its own, such as BatchNorm's
statistics; these are kept here for as long as Keras still has the array that stands for them. A write of the host is
recognised as another array, and goes to all replicas.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from keras_ipu.stock import models as keras_models

_REPLICA_STATE = "_ipu_replica_state"
"""A model's attribute."""


def separate(model: Any) -> None:
    """Copies arrays that several variables of a model share, since a run donates its arguments.

    Keras has such variables where, at the end of `fit`, weights are given their averages.
    """
    held: set[int] = set()
    optimizer = getattr(model, "optimizer", None)  # a model that is not compiled has none, and can predict
    for variable in (*model.variables, *(optimizer.variables if optimizer else ())):
        array = variable.value
        if id(array) in held:
            variable.assign(jnp.copy(array))
        held.add(id(array))


@dataclasses.dataclass(frozen=True)
class _Kept:
    shown: weakref.ref[Any]
    all: Any


class ReplicaState:
    """Per-replica values of the arrays that Keras holds."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def shown(self, state: Any, replicas: int) -> Any:
        """Returns the arrays for Keras from arrays with a leading axis of replicas."""
        return state if replicas == 1 else jax.tree.map(self._show, state)

    def all_replicas_state(self, state: Any, replicas: int, keep: bool = False) -> Any:
        """Returns the arrays to run on for Keras's: with per-replica values where those are known.

        Args:
            state: the tree of arrays that Keras has.
            replicas: how many there are.
            keep: whether the arrays are to outlive the run, which takes over those that it is given: it gets copies.
        """
        if not self._kept and not keep:
            return state
        return jax.tree.map(lambda array: self._given(array, replicas, keep), state)

    def of_each_replica(self, array: Any) -> np.ndarray | None:
        """Returns the values of each replica that an array of Keras's stands for; None where all are the same."""
        kept = self._kept.get(id(array))
        if kept is None or kept.shown() is not array or kept.all.is_deleted():
            return None
        values = np.array(kept.all)
        return None if all(each.tobytes() == values[0].tobytes() for each in values[1:]) else values

    def restore(self, array: Any, values: np.ndarray) -> None:
        """Has an array that Keras holds stand for a value of each replica."""
        key = id(array)
        self._kept[key] = _Kept(weakref.ref(array, lambda _: self._kept.pop(key, None)), jnp.asarray(values))

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
    """State of a model's variables while the device runs on a copy, for callbacks of single steps.

    Args:
        model: the model.
        names: of the parts of the state, as Keras calls them.
        state: lists of arrays by these names.
    """

    def __init__(self, model: Any, names: tuple[str, ...], state: tuple[list[Any], ...]) -> None:
        self._model = model
        self._names = names
        keras_models.restore_state(model, dict(zip(names, state, strict=True)))
        self._held = keras_models.state_of(model, names)

    def merge_callback_writes(self, after: tuple[list[Any], ...]) -> tuple[list[Any], ...]:
        """Returns the state after a run, with values that callbacks wrote in the meantime."""
        keras_models.mark_out_of_date(self._model)
        now = keras_models.state_of(self._model, self._names)
        return tuple(
            [new if held is found else found for new, held, found in zip(*parts, strict=True)]
            for parts in zip(after, self._held, now, strict=True)
        )


def replica_state_of(model: Any) -> ReplicaState:
    """Returns the `ReplicaState` of a model, which all its functions share."""
    state: ReplicaState = vars(model).setdefault(_REPLICA_STATE, ReplicaState())
    return state
