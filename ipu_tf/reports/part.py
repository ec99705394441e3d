"""`Part`: operations and values of a part of a program, with the bytes that are alive, as frozen data."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping


class Category(enum.Enum):
    """What a value is to its program."""

    STATE = "state"
    """Parameters with a new value after each execution: weights, optimizer state, moving averages."""
    READ = "read only"
    """Parameters and constants that keep their value."""
    ACCUMULATORS = "accumulators"
    """Gradients of micro-batches that are added up."""
    HIDDEN = "hidden state"
    """Seeds, counters and delay lines that the program carries besides its own values."""
    FEEDS = "feeds"
    """One element of each infeed and outfeed. Staging buffers of the host are not in it."""
    TEMPORARIES = "temporaries"
    """Everything else: activations, gradients, intermediate results."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A value of a part, in a buffer of its own.

    Attributes:
        name: the operation that makes it, with its scopes; or which parameter, queue or hidden state it is.
        category: what it is to the program.
        bytes: its size on one replica.
        first: index of the operation that makes it; 0 for what is there from the start.
        last: index of the last operation that reads it; the last operation for results and for what is not donated.
    """

    name: str
    category: Category
    bytes: int
    first: int
    last: int


@dataclasses.dataclass(frozen=True)
class Operation:
    """A JAX operation of a part. Calls are replaced by what they call.

    Attributes:
        name: its scopes and its primitive, such as `dense/MatMul/dot_general`.
        live: bytes of each category while it runs.
        inside: of these, the bytes that a loop or branch in it needs at its own peak; they are temporaries.
        trips: how often its body runs, for a loop of known length.
        body: operations of a loop's body, or of the branch with the highest peak. Their `live` is what is made inside.
    """

    name: str
    live: Mapping[Category, int]
    inside: int = 0
    trips: int | None = None
    body: tuple[Operation, ...] = ()

    @property
    def total(self) -> int:
        """Bytes that are alive while it runs."""
        return sum(self.live.values())


@dataclasses.dataclass(frozen=True)
class Part:
    """Part of a program.

    Attributes:
        kind: "straight line", "loop", or "loop without feeds".
        operations: its operations in order; of a loop those of one iteration.
        values: every value outside of the bodies of loops and branches in it.
    """

    kind: str
    operations: tuple[Operation, ...]
    values: tuple[Value, ...]

    @property
    def peak(self) -> int:
        """The most bytes that are alive at one operation."""
        return max((each.total for each in self.operations), default=0)

    @property
    def peak_index(self) -> int:
        """Index of the first operation at the peak."""
        return max(range(len(self.operations)), key=lambda index: self.operations[index].total, default=0)

    def alive_at(self, index: int) -> tuple[Value, ...]:
        """Returns the values that are alive at an operation, the largest first."""
        alive = (value for value in self.values if value.first <= index <= value.last)
        return tuple(sorted(alive, key=lambda value: -value.bytes))
