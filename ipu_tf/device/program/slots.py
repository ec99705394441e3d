"""`Slots`: the arrays of one execution, and which buffers may be donated."""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.errors import AccumulationCountError
from ipu_tf.device.program.program import Arrays, LoopPart, Program
from ipu_tf.device.program.replicas import Replicas


class Slots:
    """Slots of one execution of a program.

    Args:
        program: the program.
        parameters: its parameters, which fill the first slots.
    """

    def __init__(self, program: Program, parameters: Sequence[Any]) -> None:
        self._program = program
        self._arrays: dict[int, Any] = dict(enumerate(parameters))

    def results(self) -> Arrays:
        """Returns the program's results."""
        arrays = [self._arrays[slot] for slot in self._program.results]
        return tuple([array if isinstance(array, jax.Array) else jnp.asarray(array) for array in arrays])

    def read(self, slots: Sequence[int]) -> tuple[Any, ...]:
        """Returns the arrays in some slots."""
        return tuple(self._arrays[slot] for slot in slots)

    def fill(self, slots: Sequence[int | None], arrays: Sequence[Any]) -> None:
        """Stores arrays in slots; None drops one."""
        self._arrays.update((s, a) for s, a in zip(slots, arrays, strict=True) if s is not None)

    def take(self, index: int) -> tuple[dict[int, Any], dict[int, Any]]:
        """Returns the arrays that part `index` reads: donated ones, and others."""
        dying = self._program.last_read_slots(index)
        live = {slot: self._arrays[slot] for slot in self._program.parts[index].live_in}
        alone = self._alone()
        taken = {slot: a for slot, a in live.items() if slot in dying and slot in alone and self._like_state(slot, a)}
        for slot in taken:
            del self._arrays[slot]
        return taken, {slot: array for slot, array in live.items() if slot not in taken}

    def donate_carry(self, index: int, part: LoopPart, replaced: Collection[int] | None = None) -> Arrays:
        """Returns a loop's initial carry as buffers that can be donated: copied where they are in use elsewhere.

        Args:
            index: which part.
            part: that part.
            replaced: positions in the carry that are donated; all by default.
        """
        dying = self._program.last_read_slots(index) - set(part.constants)
        alone, uses = self._alone(), collections.Counter(part.carry_in)
        carry: list[jax.Array] = []
        for position, slot in enumerate(part.carry_in):
            array = self._arrays[slot]
            if replaced is not None and position not in replaced:
                carry.append(array)
                continue
            # A number of numpy's gets its buffer in the call, sooner than here.
            own = isinstance(array, np.generic) or (slot in dying and slot in alone and uses[slot] == 1)
            carry.append(array if own else jnp.array(array, copy=True))
        return tuple(carry)

    def _like_state(self, slot: int, array: jax.Array) -> bool:
        """Tests whether an array has shape and dtype of a piece of state: JAX warns of unusable donated buffers."""
        parameters = self._program.parameters
        if slot < len(parameters):
            return True
        states = [parameters[index] for index in self._program.aliases.values()]
        return any(array.dtype == t.dtype and array.shape[array.ndim - len(t.shape) :] == t.shape for t in states)

    def _alone(self) -> set[int]:
        """Returns the slots whose JAX array no other slot holds."""
        holders = collections.Counter(map(id, self._arrays.values()))
        return {s for s, array in self._arrays.items() if isinstance(array, jax.Array) and holders[id(array)] == 1}


def trip_count(part: LoopPart, carry: Sequence[Any], replicas: Replicas) -> int | None:
    """Returns how many iterations a loop has; None where that depends on data, or replicas differ.

    Args:
        part: the loop.
        carry: its initial values.
        replicas: that run it.

    Raises:
        AccumulationCountError: for a number that makes no whole number of weight updates.
    """
    iterations = None if part.trip_count is None else _trips_of_all(part.trip_count, carry, replicas.count)
    for count in part.accumulation_counts:
        if iterations is None or iterations % count:
            raise AccumulationCountError(count, iterations, part.accumulated_at)
    return iterations


def _trips_of_all(count: Callable[[Sequence[Any]], int | None], carry: Sequence[Any], replicas: int) -> int | None:
    """Returns the trip count that all replicas have; None where they differ: the loop's condition is asked then."""
    if replicas == 1:
        return count(carry)
    counts = {count(_OfReplica(carry, replica)) for replica in range(replicas)}
    return counts.pop() if len(counts) == 1 else None


class _OfReplica(Sequence[Any]):
    """One replica's values of arrays with a leading replica axis, each read when it is asked for."""

    def __init__(self, arrays: Sequence[Any], replica: int) -> None:
        self._arrays, self._replica = arrays, replica

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self._arrays[index])[self._replica]
