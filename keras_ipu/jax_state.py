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

    def of_replicas(self, state: Any, replicas: int) -> Any:
        """The tree of arrays to run on for one that Keras has: where it was shown here, with an axis of replicas."""
        return jax.tree.map(lambda array: self._all(array, replicas), state) if self._kept else state

    def _show(self, array: Any) -> Any:
        shown = array[0]
        key = id(shown)
        self._kept[key] = _Kept(weakref.ref(shown, lambda _: self._kept.pop(key, None)), array)
        return shown

    def _all(self, array: Any, replicas: int) -> Any:
        kept = self._kept.get(id(array))
        if kept is None or kept.shown() is not array or len(kept.all) != replicas or kept.all.is_deleted():
            return array
        return kept.all
