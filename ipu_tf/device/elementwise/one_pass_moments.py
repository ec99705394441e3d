"""Rewrites programs so that mean and variance of the same array are computed in one pass over it.

    total = sum(x);  v = total / n;  squares = sum((x - v) ** 2)        two passes, and x - v may be written out

    total, apart = moments(x);       squares = apart + n * (total / n - v) ** 2

`apart` are squared distances from the mean of x itself: the second line holds for any v. Batch normalisation has a pair
of such sums in every layer. JAX's `mean` and `var` sum x once each: these become one, too.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
from jax import lax

from ipu_tf.device.convolution.native.sums import is_middle_sum, moments
from ipu_tf.device.elementwise.operands import Operand, OperandKind
from ipu_tf.device.elementwise.views import Views
from ipu_tf.device.jaxprs.flat_equations import Equation, FlatFunction
from ipu_tf.device.jaxprs.rewriting import Rewriting


def with_one_pass_moments(function: FlatFunction) -> FlatFunction:
    """Returns a function that computes the same with such pairs of sums in one pass; itself if it has none.

    Args:
        function: with sums by the native kernel, `middle_sum`.
    """
    pairs = _Pairs(function).found()
    rewriting, apart = Rewriting(function), dict[Equation, int]()
    for pair in pairs:
        total = pair.total.outputs[0]
        if pair.total not in apart:
            apart[pair.total] = rewriting.new_value(function.types[total])
            rewriting.replace(pair.total, moments, pair.total.values, (total, apart[pair.total]))
        terms = np.float32(function.types[pair.total.values[0]].shape[1])
        squares = functools.partial(_squares_about, terms)
        rewriting.replace(pair.squares, squares, (apart[pair.total], total, pair.center), pair.squares.outputs[:1])
        for again in pair.again:
            rewriting.read_instead(again.outputs[0], total)
    return rewriting.rewritten() if pairs else function


def _squares_about(terms: np.float32, apart: jax.Array, total: jax.Array, center: jax.Array) -> jax.Array:
    """Returns squared distances from a center, given those from the mean."""
    distance = lax.sub(lax.div(total, terms), lax.reshape(center, total.shape))
    return lax.add(apart, lax.mul(terms, lax.square(distance)))


@dataclasses.dataclass(frozen=True)
class _Pair:
    """A sum of an array, and one of squared distances from `center`.

    Attributes:
        total: the first sum of the array.
        again: sums of it that are the same.
        squares: the sum of squared distances.
        center: a value for each column.
    """

    total: Equation
    again: tuple[Equation, ...]
    squares: Equation
    center: int


class _Pairs:
    def __init__(self, function: FlatFunction) -> None:
        self._function, self._views = function, Views(function)
        self._totals: dict[int, list[Equation]] = {}  # of each array, by its number

    def found(self) -> list[_Pair]:
        """Returns the pairs, in the order of their second sums."""
        pairs = []
        for equation in self._function.equations:
            summed = self._views.summed(equation) if is_middle_sum(equation.eqn) else None
            if summed is None:
                continue
            pair = self._pair(equation, summed.value)
            if pair is None:
                self._totals.setdefault(summed.value, []).append(equation)
            else:
                pairs.append(pair)
        return pairs

    def _pair(self, squares: Equation, summed: int) -> _Pair | None:
        squared = self._squared(summed)
        operands = None if squared is None or squared.name != "sub" else self._views.operands(squared)
        x, center = operands or (None, None)
        if not isinstance(x, Operand) or not isinstance(center, Operand) or not self._is_row(center, squares):
            return None
        [shape] = self._shapes(squares)
        totals = [each for each in self._totals.get(x.value, ()) if self._shapes(each) == [shape]]
        return _Pair(totals[0], tuple(totals[1:]), squares, center.value) if totals else None

    def _is_row(self, center: Operand, squares: Equation) -> bool:
        """Returns whether an operand has a value for each column of a sum, repeated for each term."""
        repeated = center.kind is OperandKind.BROADCAST and center.strides == (0, 0, 0, 1)
        return repeated and center.sizes[-1] == self._function.types[squares.outputs[0]].shape[-1]

    def _shapes(self, equation: Equation) -> list[tuple[int, ...]]:
        return [self._function.types[value].shape for value in equation.values]

    def _squared(self, value: int) -> Equation | None:
        """Returns what makes the value that another is the square of."""
        made = self._function.made_by.get(value)
        if made is None or not made.values:
            return None
        square = made.name == "square" or (made.name == "integer_pow" and made.eqn.params["y"] == 2)
        if not square and not (made.name == "mul" and len(made.values) == 2 and len({*made.values}) == 1):
            return None
        return self._function.made_by.get(self._views.shown(made.values[0]))
