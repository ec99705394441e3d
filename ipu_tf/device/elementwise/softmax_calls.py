"""Rewrites programs so that a softmax over the last axis is one call of the native kernel.

y = scale * x;  e = exp(y - max(y));  e / sum(e)        as TensorFlow has it: five passes over the array
softmax(x, scale)                                       one
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np
from jax import lax
from jax.extend import core

from ipu_tf.device.convolution.native import library
from ipu_tf.device.elementwise.operands import Operand, OperandKind
from ipu_tf.device.elementwise.patterns import Patterns
from ipu_tf.device.elementwise.readers import Readers
from ipu_tf.device.elementwise.views import Views
from ipu_tf.device.jaxprs.flat_equations import Equation, FlatFunction
from ipu_tf.device.jaxprs.rewriting import Replacement, replaced

#: Elements of a part of a call, about, and the most parts: results do not depend on them.
PART, MOST_PARTS = 2**14, 16
LEAST, FEWEST_COLUMNS = 2**14, 8
"""Elements, and columns, of the smallest call: XLA computes others in less than a call takes."""


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
    native, columns = library.needed(), x.shape[-1]
    rows = x.size // columns
    parts = max(1, min(MOST_PARTS, x.size // PART, rows))
    bits = int(np.float32(scale).view(np.uint32))
    words = np.array([library.level_or_best(level), rows, columns, bits, parts], np.int64)
    result = jax.ShapeDtypeStruct(x.shape, np.float32)
    computed: jax.Array = jax.ffi.ffi_call(native.target(library.SOFTMAX), result)(x, shapes=words)
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
        if quotient.name != "div" or not self._is_large(quotient):
            return None
        kind = self._function.types[quotient.outputs[0]]
        shape = (kind.size // kind.shape[-1], kind.shape[-1])
        exponential, total = self._pair(quotient, "div", shape)
        if exponential is None or total is None:
            return None
        of, distance = self._patterns.made(exponential, "exp"), None
        if (
            of is not None
            and self._patterns.made(total, "sum")
            and self._patterns.is_of_rows(total, exponential, shape)
        ):
            distance = self._function.made_by.get(self._views.shown(of.values[0]))
        value, largest = self._pair(distance, "sub", shape)
        if distance is None or of is None or value is None or largest is None:
            return None
        most, sums = self._patterns.made(largest, "reduce_max"), self._function.made_by[total]
        if most is None or not self._patterns.is_of_rows(largest, value, shape):
            return None
        if not self._readers.are_among(of.outputs[0], {sums, quotient}):
            return None
        return self._scaled(_Softmax(quotient, value), {distance, most})

    def _is_large(self, quotient: Equation) -> bool:
        made = self._function.types[quotient.outputs[0]]
        return made.dtype == np.float32 and made.size >= LEAST and made.shape[-1] >= FEWEST_COLUMNS

    def _pair(self, equation: Equation | None, name: str, shape: tuple[int, int]) -> tuple[int | None, int | None]:
        """Returns what an operation reads: an array of some rows and columns, and a value of each row, repeated."""
        if equation is None or equation.name != name:
            return None, None
        x, row = self._views.operands(equation) or (None, None)
        if not isinstance(x, Operand) or not isinstance(row, Operand) or x.kind is not OperandKind.WHOLE:
            return None, None
        repeated = (row.sizes, row.strides) == ((1, 1, *shape), (0, 0, 1, 0))
        return (x.value, self._unbounded(row.value)) if repeated else (None, None)

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

    def _scaled(self, found: _Softmax, readers: set[Equation]) -> _Softmax:
        """Returns it with what multiplies its operand with a number."""
        product = self._patterns.made(found.value, "mul")
        operands = None if product is None else self._views.operands(product)
        if operands is None or not self._readers.are_among(found.value, readers):
            return found
        numbers = [each for each in operands if isinstance(each, core.Literal)]
        arrays = [each for each in operands if isinstance(each, Operand) and each.kind is OperandKind.WHOLE]
        if len(numbers) != 1 or len(arrays) != 1:
            return found
        return _Softmax(found.quotient, arrays[0].value, float(numbers[0].val))
