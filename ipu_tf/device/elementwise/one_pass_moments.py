"""Rewrites programs so that mean and variance of the same array are computed in one pass over it.

    total = sum(x);  v = total / n;  squares = sum((x - v) ** 2)        two passes, and x - v may be written out

    total, apart = moments(x);       squares = apart + n * (total / n - v) ** 2

`apart` are squared distances from the mean of x itself: the second line holds for any v. Batch and layer normalisation
have a pair of such sums in every layer. JAX's `mean` and `var` sum x once each: these become one, too.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np
from jax import lax

from ipu_tf.device.convolution.native.sums import is_middle_sum, moments
from ipu_tf.device.elementwise.operands import Operand, OperandKind, joined_axes, strides_of
from ipu_tf.device.elementwise.patterns import Patterns
from ipu_tf.device.elementwise.views import LEAST_COLUMNS, LEAST_TERMS, Views
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
        center: a value for each sum.
    """

    total: Equation
    again: tuple[Equation, ...]
    squares: Equation
    center: int


class _Pairs:
    def __init__(self, function: FlatFunction) -> None:
        self._function, self._views, self._patterns = function, Views(function), Patterns(function)
        self._totals: dict[int, list[Equation]] = {}  # of each array, by its number

    def found(self) -> list[_Pair]:
        """Returns the pairs, in the order of their second sums."""
        pairs = []
        for equation in self._function.equations:
            if not self._is_taken(equation):
                continue
            summed = self._views.before_reshapes(equation.values[0])
            pair = self._pair(equation, summed)
            if pair is None:
                self._totals.setdefault(summed, []).append(equation)
            else:
                pairs.append(pair)
        return pairs

    def _is_taken(self, equation: Equation) -> bool:
        """Returns whether the kernel computes moments for a sum, and well: of vectors of columns, or of whole rows."""
        if not is_middle_sum(equation.eqn):
            return False
        [(_, terms, after)] = self._shapes(equation)
        return after >= LEAST_COLUMNS and terms >= LEAST_TERMS or after == 1 and terms >= LEAST_COLUMNS

    def _pair(self, squares: Equation, summed: int) -> _Pair | None:
        distance = self._patterns.made(self._patterns.squared(summed), "sub")
        operands = None if distance is None else self._views.operands(distance)
        x, center = operands or (None, None)
        if not isinstance(x, Operand) or not isinstance(center, Operand):
            return None
        [shape] = self._shapes(squares)
        if not self._is_repeated(center, shape):
            return None
        totals = [each for each in self._totals.get(x.value, ()) if self._shapes(each) == [shape]]
        return _Pair(totals[0], tuple(totals[1:]), squares, center.value) if totals else None

    def _is_repeated(self, center: Operand, shape: Sequence[int]) -> bool:
        """Returns whether an operand has a value for each sum over the middle axis, repeated for each term."""
        before, _, after = shape
        strides = strides_of((before, 1, after))
        axes = [each for each in zip(center.sizes, center.strides, strict=True) if each[0] > 1]
        is_of_sums = self._function.types[center.value].size == before * after
        return center.kind is OperandKind.BROADCAST and is_of_sums and axes == [*joined_axes(shape, strides)]

    def _shapes(self, equation: Equation) -> list[tuple[int, ...]]:
        return [self._function.types[value].shape for value in equation.values]
