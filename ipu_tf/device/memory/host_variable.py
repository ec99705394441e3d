"""`HostVariable`: the host's side of a variable, and snapshots that tell whether the host has written to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

Snapshot = tuple[np.ndarray, Any]
"""A variable's present value as a view without a copy, and an object that keeps that memory from being reused.

As long as the object lives, a write to the variable must show as a view at another address.
"""


class HostVariable(Protocol):
    """Host side of a variable. Those of one `Residency` are of one class, since reading all at once costs less."""

    @staticmethod
    def snapshots(variables: Sequence[Any]) -> Sequence[Snapshot]:
        """Takes a snapshot of each variable."""
        ...

    def share(self) -> None:
        """Makes the next snapshots views of the variable's own memory: those of an unchanged one are at one place."""
        ...

    @staticmethod
    def write_all(variables: Sequence[Any], values: Sequence[np.ndarray]) -> None:
        """Assigns a copy of a value to each variable. The arrays may be the device's memory, which is used again."""
        ...


def snapshots(variables: Sequence[HostVariable]) -> Sequence[Snapshot]:
    """Takes a snapshot of each variable."""
    return type(variables[0]).snapshots(variables) if variables else ()


def shared_snapshot(variable: HostVariable) -> Snapshot:
    """Takes a snapshot whose place tells later whether the host has written."""
    variable.share()
    (seen,) = snapshots([variable])
    return seen


def address(seen: Snapshot) -> int:
    """Returns where the value is."""
    return seen[0].ctypes.data


def addresses(variables: Sequence[HostVariable]) -> list[int]:
    """Returns where the values are. No snapshot is left, so that a variable that is written drops what it had."""
    return list(map(address, snapshots(variables)))
