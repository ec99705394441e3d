"""Expression language of `custom_ops.codelet_expression_op`: element-wise expressions of tensors.

Expressions have `+`, `-`, `*`, `abs`, unary `-` and `+`, `~` (which negates, too), `constant`, `let` and `condition`,
but no division and no comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from ipu_tf._arguments.named_int_enum import NamedIntEnum
from ipu_tf._state.numbers import next_number


class BaseType(NamedIntEnum):
    """Element types by number."""

    Unknown = 0
    Int16 = 1
    Int32 = 2
    Float16 = 3
    Float32 = 4
    Sequence = 5


class Type:
    """The type of an expression.

    Args:
        type: which one.
    """

    def __init__(self, type: BaseType) -> None:
        self._type = type

    def getType(self) -> BaseType:
        """Which type it is."""
        return self._type

    def getElementType(self) -> BaseType:
        """Which type its elements have."""
        return self._type


class Unknown(Type):
    """A type that is not known yet."""

    def __init__(self) -> None:
        super().__init__(BaseType.Unknown)


class Int16(Type):
    """16 bit integers."""

    def __init__(self) -> None:
        super().__init__(BaseType.Int16)


class Int32(Type):
    """32 bit integers."""

    def __init__(self) -> None:
        super().__init__(BaseType.Int32)


class Float16(Type):
    """16 bit floating point."""

    def __init__(self) -> None:
        super().__init__(BaseType.Float16)


class Float32(Type):
    """32 bit floating point."""

    def __init__(self) -> None:
        super().__init__(BaseType.Float32)


class Sequence(Type):
    """A sequence of elements.

    Args:
        element_type: the type of its elements.
    """

    def __init__(self, element_type: Type) -> None:
        super().__init__(BaseType.Sequence)
        self._element_type = element_type

    def getElementType(self) -> BaseType:
        """Which type its elements have."""
        return self._element_type.getElementType()


class VertexExpression:
    """An expression over the elements of tensors.

    Args:
        type: its type, or None where it depends on the tensors.
        value: from the values of names, and the dtype, to the expression's value.
        text: the expression as text.
    """

    def __init__(self, type: Type | None, value: Callable[[Mapping[str, Any], tf.DType], Any], text: str) -> None:
        self._type = type
        self._value = value
        self._text = text

    def getType(self) -> Type | None:
        """Its type, or None where it depends on the tensors."""
        return self._type

    def evaluate(self, values: Mapping[str, Any], dtype: tf.DType) -> Any:
        """Its value, as a tensor of `dtype`, given the tensors that its names stand for."""
        return self._value(values, dtype)

    def __str__(self) -> str:
        return self._text

    def __abs__(self) -> VertexExpression:
        return VertexExpression(self._type, lambda v, d: tf.abs(self.evaluate(v, d)), f"abs({self})")

    def __add__(self, other: Any) -> VertexExpression:
        return self._with(other, "+", lambda a, b: a + b)

    def __sub__(self, other: Any) -> VertexExpression:
        return self._with(other, "-", lambda a, b: a - b)

    def __mul__(self, other: Any) -> VertexExpression:
        return self._with(other, "*", lambda a, b: a * b)

    def __neg__(self) -> VertexExpression:
        return VertexExpression(self._type, lambda v, d: -self.evaluate(v, d), f"(0-{self})")

    def __invert__(self) -> VertexExpression:
        return -self

    def __pos__(self) -> VertexExpression:
        return self

    def _with(self, other: Any, sign: str, combine: Callable[[Any, Any], Any]) -> VertexExpression:
        right = as_expression(other)
        return VertexExpression(
            self._type, lambda v, d: combine(self.evaluate(v, d), right.evaluate(v, d)), f"({self}{sign}{right})"
        )


def placeholder(name: str, type: Type | None = None) -> VertexExpression:
    """Returns the expression of a tensor.

    Args:
        name: by which `VertexExpression.evaluate` finds the tensor.
        type: its type, if that is known.
    """
    return VertexExpression(type, lambda values, dtype: values[name], name)


def constant(value: int | float) -> VertexExpression:
    """A number.

    Args:
        value: an int or a float.

    Raises:
        NotImplementedError: for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotImplementedError(f"A constant of an expression must be an int or a float. Received: {value!r}.")
    type = Int32() if isinstance(value, int) else Float32()
    return VertexExpression(type, lambda values, dtype: tf.cast(value, dtype), str(value))


def let(expr: VertexExpression, f: Callable[[VertexExpression], VertexExpression]) -> VertexExpression:
    """An expression in which another one is used by name, and computed once.

    Args:
        expr: what is named.
        f: from the name to the expression that uses it.
    """
    expr = as_expression(expr)
    name = f"var{next_number('variable of a vertex')}"
    body = as_expression(f(placeholder(name, expr.getType())))

    def value(values: Mapping[str, Any], dtype: tf.DType) -> Any:
        return body.evaluate({**values, name: expr.evaluate(values, dtype)}, dtype)

    return VertexExpression(body.getType(), value, f"(let {name}={expr} in {body})")


def condition(pred: VertexExpression, a: VertexExpression, b: VertexExpression) -> VertexExpression:
    """Selects one expression where another is not 0, and a third where it is 0.

    Args:
        pred: what is compared with 0.
        a: the value where `pred` is not 0.
        b: the value where it is.
    """
    pred, a, b = as_expression(pred), as_expression(a), as_expression(b)

    def value(values: Mapping[str, Any], dtype: tf.DType) -> Any:
        chosen = tf.not_equal(pred.evaluate(values, dtype), tf.cast(0, dtype))
        return tf.where(chosen, a.evaluate(values, dtype), b.evaluate(values, dtype))

    return VertexExpression(a.getType(), value, f"(if {pred} then {a} else {b})")


def as_expression(value: Any) -> VertexExpression:
    """An expression as it is.

    Args:
        value: what should be one.

    Raises:
        TypeError: if it is something else.
    """
    if isinstance(value, VertexExpression):
        return value
    raise TypeError(
        f"Expressions combine with expressions. Received: {value!r}. Write a number as vertex_edsl.constant(number)."
    )
