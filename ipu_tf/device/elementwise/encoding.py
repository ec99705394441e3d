"""Calls the native elementwise kernel: encodes a function as words, in the layout of `native/elementwise.h`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ipu_tf.device.convolution.native import library
from ipu_tf.device.elementwise.function import ElementwiseFunction
from ipu_tf.device.elementwise.instructions import CODES
from ipu_tf.device.elementwise.operands import AXES, Operand, OperandKind
from ipu_tf.device.elementwise.slots import Instruction, Slot

_CACHE, _LEAST_BLOCK, _MOST_BLOCK = 2**12, 64, 1024
"""Floats of a block's intermediate results, which stay in the first cache; bounds of a block."""
_PART, _MOST_PARTS = 2**15, 16
"""Elements of a part of a call, about, and the most parts: results do not depend on them."""
_UNUSED = Slot("constant", 0)


def call(
    function: ElementwiseFunction, operands: Sequence[Any], results: Sequence[Any], level: int | None = None
) -> Any:
    """Computes an elementwise function by the native kernel.

    Args:
        function: the function.
        operands: an array for each input.
        results: shape and dtype of each output, and of each sum.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        An array for each output, and for each sum.

    Raises:
        RuntimeError: if there is no native library.
    """
    native = library.needed()
    sizes = [operand.size for operand in operands]
    made = tuple(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in results)
    aliases = {taken: output for output, taken in function.in_place.items()}
    computed = jax.ffi.ffi_call(native.target(library.ELEMENTWISE), made, input_output_aliases=aliases)
    return computed(*operands, program=words(function, sizes, library.level_or_best(level)))


def words(function: ElementwiseFunction, sizes: Sequence[int], level: int) -> np.ndarray:
    """Returns a program as the kernel reads it.

    Args:
        function: the function.
        sizes: elements of each operand.
        level: the most capable instruction set to use.
    """
    block = block_of(function)
    counts = [len(function.inputs), len(function.outputs), len(function.sums), function.registers]
    head = [level, function.elements, block, parts_of(function.elements, block), *counts]
    head += [len(_constants(function)), len(function.instructions)]
    inputs = [word for operand, size in zip(function.inputs, sizes, strict=True) for word in _input(operand, size)]
    kinds = [(OperandKind.WHOLE_BOOL if is_bool else OperandKind.WHOLE).value for _, is_bool in function.outputs]
    constants = [int(value.view(np.uint32)) for value in _constants(function)]
    instructions = [word for each in function.instructions for word in _instruction(function, each)]
    return np.array([*head, *inputs, *kinds, *function.sums, *constants, *instructions], np.int64)


def block_of(function: ElementwiseFunction) -> int:
    """Returns how many elements are computed at a time: whole periods of the longest broadcast row that fits."""
    broadcast = [each for each in function.inputs if each.kind in (OperandKind.BROADCAST, OperandKind.BROADCAST_BOOL)]
    room = _CACHE // max(1, function.registers + len(broadcast))
    block = min(_MOST_BLOCK, max(_LEAST_BLOCK, room // 16 * 16))
    periods = [each.sizes[-1] for each in broadcast if each.strides[-1] == 1 and each.sizes[-1] <= block]
    longest = max(periods, default=1)
    return min(block // longest * longest, function.elements)


def parts_of(elements: int, block: int) -> int:
    """Returns into how many parts a call is cut.

    Example:
        >>> parts_of(1000, 512), parts_of(2**18, 512), parts_of(2**24, 512)
        (1, 8, 16)
    """
    return max(1, min(_MOST_PARTS, elements // _PART, -(-elements // block)))


def _constants(function: ElementwiseFunction) -> tuple[np.float32, ...]:
    return function.constants or (np.float32(0),)


def _input(operand: Operand, size: int) -> tuple[int, ...]:
    sizes, strides = operand.sizes or (1,) * AXES, operand.strides or (0,) * AXES
    return operand.kind.value, size, *sizes, *strides


def _instruction(function: ElementwiseFunction, each: Instruction) -> tuple[int, ...]:
    operands = (*each.operands, *(_UNUSED,) * (3 - len(each.operands)))
    return CODES[each.name], *(_number(function, slot) for slot in (each.to, *operands))


def _number(function: ElementwiseFunction, slot: Slot) -> int:
    """Returns the number of a slot: registers first, then inputs, outputs, constants."""
    before = {
        "register": 0,
        "input": function.registers,
        "output": function.registers + len(function.inputs),
        "sum": 0,
        "constant": function.registers + len(function.inputs) + len(function.outputs),
    }
    return before[slot.place] + slot.index
