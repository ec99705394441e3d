"""`Group`: elementwise equations that one call of the native kernel computes."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax.extend import core

from ipu_tf.device.elementwise.operands import Operand
from ipu_tf.device.jaxprs.flat_equations import Equation

Operands = tuple[Operand | core.Literal, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Elementwise equations on the same number of elements, in order, and what each reads.

    Attributes:
        equations: the equations.
        operands: of each.
        outputs: values that are read elsewhere, but sums.
        sums: values that are sums over all axes but the last.
        elements: how many there are of each other value.
    """

    equations: tuple[Equation, ...]
    operands: tuple[Operands, ...]
    outputs: tuple[int, ...]
    sums: tuple[int, ...]
    elements: int

    def kind(self) -> tuple[Any, ...]:
        """Returns what XLA would make code for once: the operations, and how many elements there are."""
        return self.elements, *(each.name for each in self.equations)

    def scope(self) -> str:
        """Returns the name scopes that all its equations are in."""
        scopes = [each.scope.split("/") for each in self.equations]
        shared = [names[0] for names in zip(*scopes, strict=False) if len(set(names)) == 1]
        return "/".join(shared)
