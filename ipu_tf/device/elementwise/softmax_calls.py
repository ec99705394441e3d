"""Rewrites programs so that a softmax over the last axis is one call of the native kernel.

y = scale * x;  e = exp(y - max(y));  e / sum(e)        as TensorFlow has it: five passes over the array
softmax(x, scale)                                       one
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.row_shapes import row_words
from ipu_tf.device.elementwise.patterns import NUMBER, ROW, WHOLE, Patterns
from ipu_tf.device.elementwise.readers import Readers
from ipu_tf.device.elementwise.views import Views
from ipu_tf.device.jaxprs.flat_equations import Equation, FlatFunction
from ipu_tf.device.jaxprs.rewriting import Replacement, replaced

FEWEST_COLUMNS = 8
"""Of a call: XLA computes others in less than a call takes."""


def with_softmax_calls(function: FlatFunction) -> FlatFunction:
    """Returns a function that computes the same with calls for softmaxes of 2^14 elements or more, or itself.

    Args:
        function: the function.
    """
    finder, replacements = _Softmaxes(function), []
    for each in filter(None, map(finder.found, function.equations)):
        compute = functools.partial(_computed, scale=each.scale, shape=function.types[each.quotient.outputs[0]].shape)
        replacements.append(Replacement(each.quotient, compute, (each.value,)))
    return replaced(function, replacements)


def _computed(x: jax.Array, scale: float, shape: Sequence[int]) -> jax.Array:
    return softmax(lax.reshape(x, shape), scale)


def softmax(x: jax.Array, scale: float = 1.0, level: int | None = None) -> jax.Array:
    """Computes `exp(scale * x)` over its sum along the last axis.

    Args:
        x: `[..., columns]`, float32, with one element at least.
        scale: x is multiplied with it beforehand.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        float32, of x's shape. It depends neither on the instruction set nor on the number of cores.

    Raises:
        RuntimeError: if there is no native library.

    Example:
        >>> softmax(jax.numpy.array([[0.0, 0.0], [0.0, -200.0]])).tolist()
        [[0.5, 0.5], [1.0, 0.0]]
    """
    call = jax.ffi.ffi_call(library.needed().target(library.SOFTMAX), jax.ShapeDtypeStruct(x.shape, np.float32))
    computed: jax.Array = call(x, shapes=row_words(x.shape, scale, level))
    return computed


@dataclasses.dataclass(frozen=True)
class _Softmax:
    """A softmax.

    Attributes:
        quotient: the equation of its result.
        value: what it is computed of.
        scale: what that is multiplied with.
    """

    quotient: Equation
    value: int
    scale: float = 1.0


class _Softmaxes:
    def __init__(self, function: FlatFunction) -> None:
        self._function, self._patterns = function, Patterns(function)
        self._views, self._readers = Views(function), Readers(function)

    def found(self, quotient: Equation) -> _Softmax | None:
        """Returns the softmax that an equation is the last one of."""
        shape = self._patterns.large_rows(quotient, FEWEST_COLUMNS) if quotient.name == "div" else None
        if shape is None:
            return None
        exponential, total = self._pair(quotient.outputs[0], "div", shape)
        of, sums = self._patterns.made(exponential, "exp"), self._patterns.made(total, "sum")
        if of is None or sums is None or not self._patterns.is_of_rows(total, exponential, shape):
            return None
        distance = self._views.shown(of.values[0])
        value, largest = self._pair(distance, "sub", shape)
        most = self._patterns.made(largest, "reduce_max")
        if most is None or not self._patterns.is_of_rows(largest, value, shape):
            return None
        if not self._readers.are_among(of.outputs[0], {sums, quotient}):
            return None
        return self._scaled(_Softmax(quotient, value), {self._function.made_by[distance], most}, shape)

    def _pair(self, value: int, name: str, shape: tuple[int, int]) -> tuple[Any, Any]:
        """Returns what the operation that makes a value reads: an array, and a value of each row."""
        x, row = self._patterns.operands(value, name, (WHOLE, ROW), shape) or (None, None)
        return x, self._unbounded(row) if isinstance(row, int) else None

    def _unbounded(self, value: int) -> int:
        """Returns the value that another one shows, passes on, or is at least minus infinity: as `jax.nn` has it."""
        while True:
            value = self._views.shown(value)
            made = self._function.made_by.get(value)
            lowest = [each.val for each in made.inputs if isinstance(each, core.Literal)] if made is not None else []
            bounded = made is not None and made.name == "max" and lowest == [-np.inf]
            if made is None or not (bounded or made.name == "stop_gradient"):
                return value
            value = made.values[0]

    def _scaled(self, found: _Softmax, readers: set[Equation], shape: tuple[int, int]) -> _Softmax:
        """Returns it with what multiplies its operand with a number."""
        x, number = self._patterns.operands(found.value, "mul", (WHOLE, NUMBER), shape) or (None, None)
        if not isinstance(x, int) or not isinstance(number, core.Literal):
            return found
        if not self._readers.are_among(found.value, readers):
            return found
        return _Softmax(found.quotient, x, float(number.val))
