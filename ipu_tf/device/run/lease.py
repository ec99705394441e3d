"""`Lease`: lets others use an execution's variables while it waits for data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import jax

from ipu_tf.device.program.program import LoopPart, Program
from ipu_tf.device.program.replicas import Replicas

NewValues = Callable[[], Mapping[int, jax.Array]]
"""Gives new values of state as they are so far, by the indices of the program's results that they are."""


class Lease(Protocol):
    """Variables of one execution. It has them alone while it computes, and not while it waits."""

    def park(self, new_values: NewValues | None) -> None:
        """Notes that the execution waits for data.

        Args:
            new_values: gives what others may go on from; None if they cannot, and wait for the end of the execution.
        """
        ...

    def resume(self) -> Mapping[int, Any]:
        """Waits until the execution may go on; returns the parameters, by index, that others may have changed."""
        ...


class NoLease:
    """`Lease` of an execution whose state belongs to nobody else."""

    def park(self, new_values: NewValues | None) -> None:
        """Does nothing."""

    def resume(self) -> Mapping[int, Any]:
        """Returns that nothing was changed."""
        return {}


@contextlib.contextmanager
def kept(lease: Lease) -> Iterator[None]:
    """Context manager: the execution waits for data, and keeps its variables."""
    lease.park(None)
    try:
        yield
    finally:
        lease.resume()


def carried_state(program: Program, part: LoopPart, replicas: Replicas) -> dict[int, int] | None:
    """Returns where a loop carries the program's state, if others may use that between its chunks.

    Returns:
        For each result that is a new value of state its position in what the loop carries; None if the loop does not
        carry all of it from the program's parameters to its results, or state stays as it is until the program has
        ended well.
    """
    if program.keeps_state or replicas.instances > 1:
        return None
    positions = {pair: place for place, pair in enumerate(zip(part.carry_in, part.carry_out, strict=True))}
    found = {result: positions.get((slot, program.results[result])) for result, slot in program.aliases.items()}
    return None if None in found.values() else {result: place for result, place in found.items() if place is not None}
