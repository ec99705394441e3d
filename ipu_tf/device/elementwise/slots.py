"""Instructions of the elementwise kernel, and where they read and write."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Slot:
    """Where an instruction reads or writes.

    Attributes:
        place: "register", "input", "output", "constant" or "sum".
        index: which of them.
    """

    place: str
    index: int


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One operation over the elements of a block: `to = name(*operands)`."""

    name: str
    to: Slot
    operands: tuple[Slot, ...]
