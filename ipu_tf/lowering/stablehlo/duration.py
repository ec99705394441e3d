"""Estimates an upper bound of a loop's duration from its StableHLO; fused ops take less.

seconds = iterations x sum over ops of (dispatch + elements written + multiplications)
"""

from __future__ import annotations

import math
from typing import Any

from ipu_tf.lowering.stablehlo.module import Module, callee
from ipu_tf.lowering.stablehlo.op import array_type
from ipu_tf.lowering.stablehlo.trip_count import most_trips

_OP, _ELEMENT, _MULTIPLICATION = 2e-7, 1e-9, 2e-11
"""Seconds of an op, of an element of its results, and of a multiplication in a product or convolution."""
_LONG = 1.0
"""Seconds from which on a loop is long."""


def runs_long(module: Module, loop: Any) -> bool:
    """Returns whether a `stablehlo.while` may run for more than a second; true if its trip count is unknown."""
    return _seconds(module, loop) > _LONG


def _seconds(module: Module, operation: Any) -> float:
    """Estimates the seconds of an op; infinite if unknown."""
    inner = [_block(module, block) for region in operation.regions for block in region.blocks]
    if operation.name == "stablehlo.while":
        trips = most_trips(module, operation)
        return math.inf if trips is None else trips * sum(inner)
    if operation.name in ("stablehlo.case", "stablehlo.if"):
        return max(inner, default=0.0)
    if operation.name == "func.call":
        return _block(module, module.functions[callee(operation)])
    return _OP + _ELEMENT * sum(map(_elements, operation.results)) + _MULTIPLICATION * _multiplications(operation)


def _block(module: Module, block: Any) -> float:
    return sum(_seconds(module, operation.operation) for operation in block.operations)


def _elements(value: Any) -> int:
    text = str(value.type)
    return math.prod(array_type(text).shape) if text.startswith("tensor") else 0


def _multiplications(operation: Any) -> int:
    """Multiplications of a product or convolution: each result has as many as what it sums over has elements."""
    if operation.name == "stablehlo.convolution":
        # More than there are: the features of the result count twice.
        return _elements(operation.results[0]) * _elements(operation.operands[1])
    if operation.name == "stablehlo.dot_general":
        left, right = (math.prod(array_type(str(name.type)).shape) for name in operation.operands)
        # Of M x K and K x N: the root of (M K)(K N)(M N) is M K N.
        return math.isqrt(left * right * _elements(operation.results[0]))
    return 0
