"""Rewrites programs so that matrix products are calls of the native kernel, with what follows them.

    transpose(x @ y)                attention's heads        the result is written where it is wanted
    max((x @ y) + bias, 0)          a dense layer            sums are in registers anyway
    z + (x @ y) + bias              a residual block         z is read there, and no sum without it is written

The sum before the maximum is not kept: a layer's gradient needs to know where the result is above 0.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
from jax.extend import core

from ipu_tf.device.convolution.native.matrix_product import MatrixProduct, matrix_product
from ipu_tf.device.convolution.native.product_form import form_of
from ipu_tf.device.elementwise.operands import Operand, OperandKind
from ipu_tf.device.elementwise.readers import Readers
from ipu_tf.device.elementwise.views import Views
from ipu_tf.device.jaxprs.flat_equations import Equation, FlatFunction
from ipu_tf.device.jaxprs.rewriting import Replacement, replaced


def with_product_calls(function: FlatFunction) -> FlatFunction:
    """Returns a function that computes the same with calls for matrix products that the kernel is faster at, or itself.

    Args:
        function: the function.
    """
    finder, replacements = _Products(function), []
    for each in filter(None, map(finder.found, function.equations)):
        shape = function.types[each.last.outputs[0]].shape
        compute = functools.partial(_computed, product=each, shape=shape)
        replacements.append(Replacement(each.last, compute, each.operands))
    return replaced(function, replacements)


def _computed(left: jax.Array, right: jax.Array, *others: jax.Array, product: _Product, shape: Any) -> jax.Array:
    rest = iter(others)
    bias, addend = (None if each is None else next(rest) for each in (product.bias, product.addend))
    least_zero = product.least_zero
    return matrix_product(left, right, product.form, bias=bias, addend=addend, least_zero=least_zero, shape=shape)


@dataclasses.dataclass(frozen=True)
class _Product:
    """A product, and what follows it.

    Attributes:
        product: its equation.
        form: the product.
        followers: what follows the product, in order.
        bias: a value for each column.
        addend: a value for each element.
        least_zero: whether negative results are 0.
    """

    product: Equation
    form: MatrixProduct
    followers: tuple[Equation, ...] = ()
    bias: int | None = None
    addend: int | None = None
    least_zero: bool = False

    @property
    def last(self) -> Equation:
        """The equation whose result is computed."""
        return self.followers[-1] if self.followers else self.product

    def followed_by(self, equation: Equation, **changes: Any) -> _Product:
        """Returns it with another equation that follows, and what that adds."""
        return dataclasses.replace(self, followers=(*self.followers, equation), **changes)

    @property
    def operands(self) -> tuple[int, ...]:
        """Values that the call reads."""
        both = self.product.values[::-1] if self.form.turned else self.product.values
        return (*both, *(each for each in (self.bias, self.addend) if each is not None))


class _Products:
    def __init__(self, function: FlatFunction) -> None:
        self._views, self._readers, self._types = Views(function), Readers(function), function.types
        self._taken: set[Equation] = set()  # sums of two products are part of one's call

    def found(self, equation: Equation) -> _Product | None:
        """Returns the product that an equation is, if the kernel pays for it."""
        form = form_of(equation.eqn)
        if form is None or not form.pays() or len(equation.values) != 2:
            return None
        product = _Product(equation, form)
        found = self._transposed(product) or self._bounded(self._with_addend(self._with_bias(product)))
        self._taken |= {*found.followers}
        return found

    def _transposed(self, product: _Product) -> _Product | None:
        """Returns it with the permutation that follows it, if one does."""
        made = product.last.outputs[0]
        reader = self._readers.only(made)
        if reader is None or reader.name != "transpose" or reader.values != (made,):
            return None
        form = form_of(product.product.eqn, reader.eqn.params["permutation"])
        return None if form is None else _Product(product.product, form, (reader,))

    def _with_bias(self, product: _Product) -> _Product:
        reader, other = self._next(product, "add")
        if reader is None or not isinstance(other, Operand) or other.kind is not OperandKind.BROADCAST:
            return product
        columns = product.form.columns
        row = other.strides == (0, 0, 0, 1) and other.sizes[-1] == columns == self._types[other.value].size
        return product.followed_by(reader, bias=other.value) if row else product

    def _with_addend(self, product: _Product) -> _Product:
        reader, other = self._next(product, "add", "add_any")
        if reader is None or not isinstance(other, Operand) or other.kind is not OperandKind.WHOLE:
            return product
        return product.followed_by(reader, addend=other.value)

    def _bounded(self, product: _Product) -> _Product:
        reader, other = self._next(product, "max")
        if reader is None or not isinstance(other, core.Literal) or float(other.val) != 0:
            return product
        return product.followed_by(reader, least_zero=True)

    def _next(self, product: _Product, *names: str) -> tuple[Equation | None, Operand | core.Literal | None]:
        """Returns the operation that alone reads a product, element by element, and the other one of its operands."""
        made = product.last.outputs[0]
        reader = self._readers.only(made)
        wanted = reader is not None and reader.name in names and reader not in self._taken
        operands = self._views.operands(reader) if wanted and reader is not None else None
        if reader is None or operands is None:
            return None, None
        own = Operand(made, OperandKind.WHOLE)
        others = [each for each in operands if each != own]
        return (reader, others[0]) if len(others) == 1 else (None, None)
