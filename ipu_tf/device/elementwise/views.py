"""What elementwise equations read: values behind reshapes and broadcasts, which need not be written out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend import core

from ipu_tf.device.convolution.native.sums import is_middle_sum
from ipu_tf.device.elementwise.instructions import PRIMITIVES
from ipu_tf.device.elementwise.operands import AXES, Operand, OperandKind, joined_axes, strides_of
from ipu_tf.device.jaxprs.flat_equations import Atom, Equation, FlatFunction

LEAST_COLUMNS, MOST_COLUMNS, LEAST_TERMS = 16, 2**14, 8
"""Columns, and terms, of a sum that is added up with the elements: each part of a call has sums of its own."""
_DTYPES = (np.dtype(np.float32), np.dtype(np.bool_))
_RESHAPES = ("reshape", "squeeze", "expand_dims", "convert_element_type")
"""Primitives that leave the elements and their order; conversions are those of float32 to itself."""
_VIEWS = (*_RESHAPES, "broadcast_in_dim")


class Views:
    """Reshapes and broadcasts of a function, and the values that they show.

    Args:
        function: the function.
    """

    def __init__(self, function: FlatFunction) -> None:
        self._types = function.types
        self._made_by = function.made_by

    def is_view(self, equation: Equation) -> bool:
        """Returns whether an equation only shows its operand in another shape."""
        if equation.name not in _VIEWS or len(equation.inputs) != 1:
            return False
        if equation.eqn.params.get("dimensions") is not None and equation.name == "reshape":
            return False  # of the transposed operand
        made = self._types[equation.outputs[0]]
        return _computable(made) and made.dtype == _dtype(equation.inputs[0], self._types)

    def shown(self, value: int) -> int:
        """Returns the value that a chain of reshapes and broadcasts begins with."""
        made = self._made_by.get(value)
        while made is not None and self.is_view(made) and made.values:
            value = made.values[0]
            made = self._made_by.get(value)
        return value

    def before_reshapes(self, value: int) -> int:
        """Returns the value before a chain of reshapes: the same elements in the same order."""
        made = self._made_by.get(value)
        while made is not None and self._is_reshape(made):
            value = made.values[0]
            made = self._made_by.get(value)
        return value

    def _is_reshape(self, made: Equation) -> bool:
        """Returns whether an equation leaves the elements and their order, as a broadcast does to axes of size 1."""
        if not made.values or not self.is_view(made):
            return False
        return made.name in _RESHAPES or self._types[made.values[0]].size == self._types[made.outputs[0]].size

    def operands(self, equation: Equation) -> tuple[Operand | core.Literal, ...] | None:
        """Returns what an elementwise equation reads; None if the kernel cannot compute it."""
        if equation.name not in PRIMITIVES:
            return None
        result = self._types[equation.outputs[0]]
        if not _computable(result) or result.size < 2:
            return None
        if not _allowed(equation, [_dtype(atom, self._types) for atom in equation.inputs]):
            return None
        found = [self._operand(atom, result.shape) for atom in equation.inputs]
        main = found[1:2] if equation.name == "clamp" else found
        if None in found or all(_is_scalar(each) for each in main):
            return None
        return tuple(each for each in found if each is not None)

    def summed(self, equation: Equation) -> Operand | None:
        """Returns what an equation sums over all axes but the last; None if it does something else."""
        if equation.name not in ("reduce_sum", "ffi_call") or len(equation.inputs) != 1 or not equation.outputs:
            return None
        if _dtype(equation.inputs[0], self._types) != np.float32 or not equation.values:
            return None
        given, made = self._types[equation.values[0]], self._types[equation.outputs[0]]
        if not LEAST_COLUMNS <= made.size <= MOST_COLUMNS or given.size < LEAST_TERMS * made.size:
            return None
        if equation.name == "reduce_sum":
            leading = sorted(equation.eqn.params["axes"]) == list(range(len(equation.eqn.params["axes"])))
        else:
            leading = is_middle_sum(equation.eqn) and given.shape[0] == 1
        return Operand(self.before_reshapes(equation.values[0]), OperandKind.WHOLE) if leading else None

    def _operand(self, atom: Atom, shape: tuple[int, ...]) -> Operand | core.Literal | None:
        if isinstance(atom, core.Literal):
            return atom if np.ndim(atom.val) == 0 else None
        if not _computable(self._types[atom]):
            return None
        given, atom = self._types[atom], self.before_reshapes(atom)
        made = self._made_by.get(atom)
        if given.size == math.prod(shape):
            if made is not None and made.name == "broadcast_in_dim" and self.is_view(made):
                return self._broadcast(made)
            return Operand(atom, OperandKind.WHOLE_BOOL if given.dtype == bool else OperandKind.WHOLE)
        if given.size == 1:
            return self._shown_as(atom, (1,), (0,), math.prod(shape))
        if len(given.shape) != len(shape):
            return None
        return self._shown_as(atom, shape, strides_of(given.shape), math.prod(shape))

    def _broadcast(self, made: Equation) -> Operand | core.Literal | None:
        """Returns what a `broadcast_in_dim` shows."""
        constant = made.inputs[0]
        if isinstance(constant, core.Literal):
            return None if _dtype(constant, self._types) == np.bool_ else constant
        value = made.values[0]
        given, result = self._types[value].shape, self._types[made.outputs[0]].shape
        strides = [0] * len(result)
        for axis, stride in zip(made.eqn.params["broadcast_dimensions"], strides_of(given), strict=True):
            strides[axis] = stride
        return self._shown_as(self.before_reshapes(value), result, strides, math.prod(result))

    def _shown_as(self, value: int, sizes: Sequence[int], strides: Sequence[int], count: int) -> Operand | None:
        """Returns an operand of these axes, joined where they belong together."""
        given = self._types[value]
        if given.size == 1:
            if given.dtype != bool:
                return Operand(value, OperandKind.SCALAR)
            sizes, strides = (count,), (0,)
        joined = joined_axes(sizes, strides)
        if len(joined) > AXES:
            return None
        padded = ((1, 0),) * (AXES - len(joined)) + joined
        kind = OperandKind.BROADCAST_BOOL if given.dtype == bool else OperandKind.BROADCAST
        return Operand(value, kind, *(tuple(each) for each in zip(*padded, strict=True)))


def _computable(kind: Any) -> bool:
    return getattr(kind, "dtype", None) in _DTYPES


def _is_scalar(operand: Operand | core.Literal | None) -> bool:
    return isinstance(operand, core.Literal) or (operand is not None and operand.kind is OperandKind.SCALAR)


def _dtype(atom: Atom, types: dict[int, Any]) -> Any:
    return getattr(atom.aval if isinstance(atom, core.Literal) else types[atom], "dtype", None)


def _allowed(equation: Equation, dtypes: Sequence[Any]) -> bool:
    """Returns whether the kernel computes a primitive with such parameters, of operands of these dtypes."""
    floats = [dtype == np.float32 for dtype in dtypes]
    constants = [isinstance(each, core.Literal) for each in equation.inputs]
    match equation.name:
        case "integer_pow":
            return bool(equation.eqn.params["y"] == 2 and floats[0])
        case "convert_element_type":
            return bool(dtypes[0] == np.bool_ and equation.eqn.params["new_dtype"] == np.float32)
        case "select_n":
            chosen = all(floats[1:]) or not any(constants)
            return bool(len(dtypes) == 3 and dtypes[0] == np.bool_ and not constants[0] and chosen)
        case "and" | "or" | "xor" | "not":
            return not any(constants) and not any(floats)
    return all(floats)
