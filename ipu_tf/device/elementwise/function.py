"""Programs of the native elementwise kernel: instructions over registers, made of a group of equations."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jax.extend import core

from ipu_tf.device.elementwise.group import Group, Operands
from ipu_tf.device.elementwise.in_place import placed_over
from ipu_tf.device.elementwise.instructions import ARITHMETIC, COMPARISONS, LOAD, PRIMITIVES, STORE, SUM, SWAPPED
from ipu_tf.device.elementwise.joined_instructions import joined
from ipu_tf.device.elementwise.operands import Operand, OperandKind
from ipu_tf.device.elementwise.registers import needed, outputs_placed, with_registers
from ipu_tf.device.elementwise.slots import Instruction, Slot
from ipu_tf.device.jaxprs.flat_equations import Equation


@dataclasses.dataclass(frozen=True)
class ElementwiseFunction:
    """A function that computes each element of its results from elements of its operands.

    Attributes:
        elements: of each result.
        inputs: its operands.
        outputs: values that it makes, and which of them are truth values.
        sums: columns of each sum over all elements with the same place in a row of so many.
        constants: float32 numbers.
        instructions: in order.
        registers: how many it needs.
        in_place: for some outputs the input whose memory it may be written to.
    """

    elements: int
    inputs: tuple[Operand, ...]
    outputs: tuple[tuple[int, bool], ...]
    sums: tuple[int, ...]
    constants: tuple[np.float32, ...]
    instructions: tuple[Instruction, ...]
    registers: int
    in_place: dict[int, int]


def function_of(
    group: Group, types: dict[int, Any], replaced: Mapping[int, int], unread: Collection[int] = ()
) -> ElementwiseFunction:
    """Returns the program of a group.

    Args:
        group: the group.
        types: shape and dtype of each value.
        replaced: for some of its outputs the operand that it replaces: a loop's value, whose memory it takes.
        unread: operands that nothing reads afterwards: other outputs may take their memory.
    """
    return _Builder(group, types, replaced, unread).build()


class _Builder:
    def __init__(
        self, group: Group, types: dict[int, Any], replaced: Mapping[int, int], unread: Collection[int]
    ) -> None:
        self._group, self._types = group, types
        self._replaced, self._unread = replaced, unread
        self._inputs: dict[Operand, int] = {}
        self._constants: dict[bytes, np.float32] = {}
        self._outputs = {value: at for at, value in enumerate(group.outputs)}
        self._values: dict[int, Slot] = {}  # of what is made here, and truth values that are loaded
        self._instructions: list[Instruction] = []
        self._sums: list[int] = []
        self._virtual = 0

    def build(self) -> ElementwiseFunction:
        for equation, operands in zip(self._group.equations, self._group.operands, strict=True):
            self._compute(equation, operands)
        in_place = placed_over(self._outputs, self._inputs, self._types, self._replaced, self._unread)
        numbers = {at: self._values[value] for value, at in self._outputs.items() if not self._is_bool(value)}
        for value, at in self._outputs.items():
            if self._is_bool(value):
                self._instructions.append(Instruction(STORE, Slot("output", at), (self._values[value],)))
        results = set(numbers.values())
        instructions = joined(needed(self._instructions, results), results)
        placed, registers = with_registers(outputs_placed(instructions, numbers, in_place))
        kinds = tuple((value, self._is_bool(value)) for value in self._group.outputs)
        inputs, sums, constants = tuple(self._inputs), tuple(self._sums), tuple(self._constants.values())
        elements = self._group.elements
        return ElementwiseFunction(elements, inputs, kinds, sums, constants, placed, registers, in_place)

    def _is_bool(self, value: int) -> bool:
        return bool(self._types[value].dtype == bool)

    def _new(self) -> Slot:
        self._virtual += 1
        return Slot("register", self._virtual - 1)

    def _emit(self, name: str, *operands: Slot) -> Slot:
        made = self._new()
        self._instructions.append(Instruction(name, made, operands))
        return made

    def _compute(self, equation: Equation, operands: Operands) -> None:
        slots = [self._slot(each) for each in operands]
        if equation.outputs[0] in self._group.sums:
            self._instructions.append(Instruction(SUM, Slot("sum", len(self._sums)), (slots[0],)))
            self._sums.append(int(self._types[equation.outputs[0]].size))
            return
        self._values[equation.outputs[0]] = self._operation(PRIMITIVES[equation.name], slots, operands)

    def _operation(self, name: str, slots: Sequence[Slot], operands: Operands) -> Slot:
        scalar = [_is_scalar(each) for each in operands]
        if name == "clamp":
            bounded = self._binary("max", (slots[1], slots[0]), (scalar[1], scalar[0]))
            return self._binary("min", (bounded, slots[2]), (False, scalar[2]))
        if name == "select":
            form = "".join("s" if each else "v" for each in (scalar[2], scalar[1]))
            return self._emit(f"select_{form}", slots[0], slots[2], slots[1])
        if name in ARITHMETIC or name in COMPARISONS:
            return self._binary(name, (slots[0], slots[1]), (scalar[0], scalar[1]))
        return self._emit(name, *slots)

    def _binary(self, name: str, slots: tuple[Slot, Slot], scalar: tuple[bool, bool]) -> Slot:
        if scalar == (True, False) and name in SWAPPED:
            name, slots, scalar = SWAPPED[name], (slots[1], slots[0]), (False, True)
        form = "".join("s" if each else "v" for each in scalar)
        return self._emit(f"{name}_{form}", *slots)

    def _slot(self, operand: Operand | core.Literal) -> Slot:
        if isinstance(operand, core.Literal):
            value = np.float32(operand.val)
            self._constants.setdefault(value.tobytes(), value)
            return Slot("constant", list(self._constants).index(value.tobytes()))
        if operand.value in self._values:
            return self._values[operand.value]
        given = Slot("input", self._inputs.setdefault(operand, len(self._inputs)))
        if operand.kind in (OperandKind.WHOLE_BOOL, OperandKind.BROADCAST_BOOL):
            given = self._emit(LOAD, given)
            if operand.kind is OperandKind.WHOLE_BOOL:
                self._values[operand.value] = given
        return given


def _is_scalar(operand: Operand | core.Literal) -> bool:
    return isinstance(operand, core.Literal) or operand.kind is OperandKind.SCALAR
