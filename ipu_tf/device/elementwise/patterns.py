"""Matches patterns in a flat jaxpr: what computes a value, behind reshapes and broadcasts, which only show it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend import core

from ipu_tf.device.convolution.native.sums import is_middle_sum
from ipu_tf.device.elementwise.operands import Operand, OperandKind
from ipu_tf.device.elementwise.views import Views
from ipu_tf.device.jaxprs.flat_equations import Equation, FlatFunction

WHOLE, ROW, COLUMN, NUMBER = "whole", "row", "column", "number"
"""Operands of an elementwise operation over rows and columns: an element, a value of each row, one of each column, and
a constant."""
LEAST = 2**14
"""Elements of the smallest call over rows: XLA computes others in less than a call takes."""
_REPEATED: dict[tuple[int, ...], str] = {(0, 0, 1, 0): ROW, (0, 0, 0, 1): COLUMN}


class Patterns:
    """What computes the values of a function.

    Args:
        function: the function.
    """

    def __init__(self, function: FlatFunction) -> None:
        self._function, self._views = function, Views(function)

    def large_rows(self, equation: Equation, fewest_columns: int) -> tuple[int, int] | None:
        """Returns rows and columns of what an equation makes, if a call over rows of float32 pays for so many."""
        made = self._function.types[equation.outputs[0]]
        if made.dtype != np.float32 or made.size < LEAST or made.shape[-1] < fewest_columns:
            return None
        return made.size // made.shape[-1], made.shape[-1]

    def made(self, value: Any, name: str) -> Equation | None:
        """Returns the equation that makes a value, if it is of a primitive, or any `sum`; None for None."""
        made = self._function.made_by.get(value)
        if made is None or not made.values:
            return None
        is_sum = made.name == "reduce_sum" or is_middle_sum(made.eqn)
        return made if (is_sum if name == "sum" else made.name == name) else None

    def operands(
        self, value: Any, name: str, kinds: Sequence[str], shape: tuple[int, int]
    ) -> tuple[int | core.Literal, ...] | None:
        """Returns what the operation that makes a value reads, if it is of a primitive and reads such operands.

        Args:
            value: its result.
            name: its primitive.
            kinds: of its operands, in any order unless their order matters.
            shape: rows and columns of the result.
        """
        equation = self.made(value, name)
        read = None if equation is None else self._views.operands(equation)
        if read is None or len(read) != len(kinds):
            return None
        orders = [read] if name in ("sub", "div") else itertools.permutations(read)
        for each in orders:
            if [_kind(operand, shape) for operand in each] == [*kinds]:
                return tuple(operand.value if isinstance(operand, Operand) else operand for operand in each)
        return None

    def shown(self, value: int) -> int:
        """Returns the value that a chain of reshapes and broadcasts begins with."""
        return self._views.shown(value)

    def squared(self, value: int) -> int | None:
        """Returns the value that another is the square of."""
        made = self._function.made_by.get(value)
        if made is None or not made.values:
            return None
        square = made.name == "square" or (made.name == "integer_pow" and made.eqn.params["y"] == 2)
        product = made.name == "mul" and len(made.values) == 2 and len({*made.values}) == 1
        return self._views.shown(made.values[0]) if square or product else None

    def is_of_rows(self, reduced: int, value: int, shape: tuple[int, int]) -> bool:
        """Returns whether a reduction is one of each row of a value, and of nothing else."""
        equation = self._function.made_by[reduced]
        given = self._function.types[equation.values[0]]
        if self._views.shown(equation.values[0]) != self._views.shown(value) or given.size != math.prod(shape):
            return False
        if "axes" not in equation.eqn.params:
            return bool(given.shape == (*shape, 1))
        last = len(given.shape) - 1
        return given.shape[last] == shape[1] and tuple(equation.eqn.params["axes"]) == (last,)


def _kind(operand: Operand | core.Literal, shape: tuple[int, int]) -> str | None:
    if isinstance(operand, core.Literal):
        return NUMBER
    if operand.kind is OperandKind.WHOLE:
        return WHOLE
    if operand.kind is not OperandKind.BROADCAST or operand.sizes != (1, 1, *shape):
        return None
    return _REPEATED.get(operand.strides)
