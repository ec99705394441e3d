"""Operands of elementwise functions: whole arrays, broadcast ones with their strides, and scalars."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

AXES = 4
"""Axes of a broadcast operand that the kernel takes, after those that belong together are joined."""


class OperandKind(enum.Enum):
    """How the kernel reads an operand, and writes a result; numbers are those of `native/elementwise.h`."""

    WHOLE = 0
    WHOLE_BOOL = 1
    BROADCAST = 2
    BROADCAST_BOOL = 3
    SCALAR = 4


@dataclasses.dataclass(frozen=True)
class Operand:
    """A value that an elementwise equation reads.

    Attributes:
        value: its number.
        kind: how it is read.
        sizes, strides: of a broadcast operand, outermost axis first: an axis of stride 0 is a repetition.
    """

    value: int
    kind: OperandKind
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it is read element by element: it has as many as the result."""
        return self.kind in (OperandKind.WHOLE, OperandKind.WHOLE_BOOL)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides of an array's axes, 0 for those of size 1.

    Example:
        >>> strides_of((2, 1, 3))
        (3, 0, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step if size > 1 else 0)
        step *= size
    return tuple(reversed(strides))


def joined_axes(sizes: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Joins neighbouring axes that are read one after the other.

    Example:
        >>> joined_axes((16, 8, 8, 1, 32), (0, 0, 0, 0, 1)), joined_axes((4, 3, 5), (15, 5, 1))
        (((1024, 0), (32, 1)), ((60, 1),))
    """
    found: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if found and found[-1][1] == stride * size:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return tuple(found) or ((1, 0),)
