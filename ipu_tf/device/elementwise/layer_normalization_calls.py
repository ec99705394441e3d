"""Rewrites programs so that a layer normalisation over the last axis is one call of the native kernel.

m = sum(x) / n;  v = sum((x - m) ** 2) / n;  s = rsqrt(v + epsilon) * gamma;  x * s + (-m * s + beta)

is how Keras has it on TensorFlow: x is read three times, and x - m may be written out. The call returns both sums too,
for the gradient.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.row_shapes import row_words
from ipu_tf.device.elementwise.patterns import COLUMN, NUMBER, ROW, WHOLE, Patterns
from ipu_tf.device.jaxprs.flat_equations import Equation, FlatFunction
from ipu_tf.device.jaxprs.rewriting import Rewriting

FEWEST_COLUMNS = 16
"""Of a call: XLA computes others in less than a call takes."""


def layer_normalization(
    x: jax.Array, gamma: jax.Array, beta: jax.Array, epsilon: float, level: int | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Normalises rows to the mean `beta` and the deviation `gamma`.

    Args:
        x: `[rows, columns]`, float32, with one element at least.
        gamma, beta: `[columns]`, float32.
        epsilon: added to the variance.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        the result, of x's shape, and `[rows]` each, the sum of a row and that of squared distances from its mean. They
        depend neither on the instruction set nor on the number of cores.

    Raises:
        RuntimeError: if there is no native library.

    Example:
        >>> one = jax.numpy.ones(2)
        >>> [each.tolist() for each in layer_normalization(jax.numpy.array([[2.0, 4.0]]), one, one, 0.0)]
        [[[0.0, 2.0]], [6.0], [2.0]]
    """
    results = [jax.ShapeDtypeStruct(shape, np.float32) for shape in (x.shape, x.shape[:1], x.shape[:1])]
    call = jax.ffi.ffi_call(library.needed().target(library.LAYER_NORMALIZATION), results)
    result, sums, squares = call(x, gamma, beta, shapes=row_words(x.shape, epsilon, level))
    return result, sums, squares


def with_layer_normalization_calls(function: FlatFunction) -> FlatFunction:
    """Returns a function that computes the same with calls for normalisations of 2^14 elements or more, or itself.

    Args:
        function: the function.
    """
    finder = _Normalizations(function)
    found = _apart(filter(None, map(finder.found, function.equations)))
    rewriting, types = Rewriting(function), function.types
    for each in found:
        results = each.result.outputs[0], each.total.outputs[0], each.squares.outputs[0]
        shapes = [types[value].shape for value in results]
        compute = functools.partial(_computed, epsilon=each.epsilon, shape=each.shape, shapes=shapes)
        rewriting.replace(each.total, compute, (each.x, each.gamma, each.beta), results)
        rewriting.leave_out(each.squares, each.result)
    return rewriting.rewritten() if found else function


def _computed(x: jax.Array, *others: jax.Array, epsilon: float, shape: tuple[int, int], shapes: Any) -> list[jax.Array]:
    gamma, beta = (lax.reshape(each, shape[1:]) for each in others)
    results = layer_normalization(lax.reshape(x, shape), gamma, beta, epsilon)
    return [lax.reshape(each, own) for each, own in zip(results, shapes, strict=True)]


@dataclasses.dataclass(frozen=True)
class _Normalization:
    """A layer normalisation.

    Attributes:
        result: the equation of its result.
        shape: its rows and columns.
        x, gamma, beta: what it is computed of.
        epsilon: what is added to the variance.
        total, squares: the equations of the sums.
    """

    result: Equation
    shape: tuple[int, int]
    x: int
    gamma: int
    beta: int
    epsilon: float
    total: Equation
    squares: Equation


def _apart(found: Iterable[_Normalization]) -> list[_Normalization]:
    """Returns those that share no equation with one before: another one reads the sums of its call."""
    taken, apart = set[Equation](), []
    for each in found:
        own = {each.result, each.total, each.squares}
        if not own & taken:
            taken |= own
            apart.append(each)
    return apart


class _Normalizations:
    def __init__(self, function: FlatFunction) -> None:
        self._patterns = Patterns(function)
        self._places = {value: at for at, each in enumerate(function.equations) for value in each.outputs}

    def found(self, result: Equation) -> _Normalization | None:
        """Returns the normalisation that an equation is the last one of."""
        shape = self._patterns.large_rows(result, FEWEST_COLUMNS) if result.name == "add" else None
        if shape is None:
            return None
        both = self._patterns.operands(result.outputs[0], "add", (WHOLE, WHOLE), shape)
        orders = () if both is None else itertools.permutations(both)
        return next(filter(None, (self._of(result, shape, *each) for each in orders)), None)

    def _of(self, result: Equation, shape: tuple[int, int], scaled: Any, moved: Any) -> _Normalization | None:
        """Returns it, of what is `x * s` and what is `-m * s + beta`."""
        read = functools.partial(self._patterns.operands, shape=shape)
        offset, beta = read(moved, "add", (WHOLE, COLUMN)) or (None, None)
        scale, minus_mean = read(offset, "mul", (WHOLE, ROW)) or (None, None)
        inverse, gamma = read(scale, "mul", (ROW, COLUMN)) or (None, None)
        factors = read(scaled, "mul", (WHOLE, WHOLE)) or ()
        mean = read(minus_mean, "neg", (WHOLE,)) or (None,)
        others = [each for each in factors if each != scale]
        if len(others) != 1 or not isinstance(gamma, int) or not isinstance(beta, int):
            return None
        x = others[0]
        if not isinstance(x, int):
            return None
        sums = self._sums(x, mean[0], inverse, shape)
        if sums is None or not self._are_made_before((x, gamma, beta), sums[0]):
            return None
        total, squares, epsilon = sums
        return _Normalization(result, shape, x, gamma, beta, epsilon, total, squares)

    def _sums(self, x: Any, mean: Any, inverse: Any, shape: tuple[int, int]) -> tuple[Equation, Equation, float] | None:
        """Returns the sums that a mean and an inverse deviation are of, and what is added to the variance."""
        read = functools.partial(self._patterns.operands, shape=shape)
        total = self._sum(mean, shape)
        moved = read(inverse, "rsqrt", (WHOLE,)) or (None,)
        variance, epsilon = read(moved[0], "add", (WHOLE, NUMBER)) or (None, None)
        squares = self._sum(variance, shape)
        if total is None or squares is None or not isinstance(epsilon, core.Literal):
            return None
        squared, of_rows = self._patterns.shown(squares.values[0]), self._patterns.is_of_rows
        if read(self._patterns.squared(squared), "sub", (WHOLE, ROW)) != (x, mean):
            return None
        if not of_rows(total.outputs[0], x, shape) or not of_rows(squares.outputs[0], squared, shape):
            return None
        return total, squares, float(epsilon.val)

    def _sum(self, mean: Any, shape: tuple[int, int]) -> Equation | None:
        """Returns the sum of rows that a mean is of."""
        of, terms = self._patterns.operands(mean, "div", (WHOLE, NUMBER), shape) or (None, None)
        if not isinstance(of, int) or not isinstance(terms, core.Literal) or float(terms.val) != shape[1]:
            return None
        return self._patterns.made(of, "sum")

    def _are_made_before(self, values: tuple[Any, ...], equation: Equation) -> bool:
        place = self._places[equation.outputs[0]]
        return all(self._places.get(each, -1) < place for each in values)
