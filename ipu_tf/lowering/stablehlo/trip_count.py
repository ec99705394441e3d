"""Computes the trip count of a counted loop from its StableHLO, without running it.

TensorFlow's `tf.range` loops and `tf.while_loop` counters lower to a condition that is a conjunction of
`index < limit` with an index the body moves by a constant and a limit it leaves alone. Anything else is a
data-dependent loop, whose count is not known before it ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ipu_tf.lowering.jax.jax_private import ir
from ipu_tf.lowering.stablehlo.module import Module, callee
from ipu_tf.lowering.stablehlo.op import Op

_SAME_VALUE = ("stablehlo.reshape", "stablehlo.convert", "mhlo.copy", "stablehlo.optimization_barrier")


@dataclasses.dataclass(frozen=True)
class CarriedValue:
    """Carried value of a loop, by its index among the loop's operands."""

    index: int


@dataclasses.dataclass(frozen=True)
class LoopBound:
    """Bound of a loop's condition: `index < limit` or `index <= limit`.

    Attributes:
        index: the carried index that the body increases.
        limit: a carried value the body leaves alone, or a constant.
        step: by how much the body increases the index, at least 1.
        inclusive: whether the condition is `<=`.
    """

    index: CarriedValue
    limit: CarriedValue | int
    step: int
    inclusive: bool

    def trips(self, carry: Sequence[Any]) -> int:
        """Computes the iterations from a start until the bound is reached."""
        start = int(np.asarray(carry[self.index.index]))
        limit = int(np.asarray(carry[self.limit.index])) if isinstance(self.limit, CarriedValue) else self.limit
        return max(0, -(-(limit + int(self.inclusive) - start) // self.step))


def trip_count(module: Module, loop: Any) -> Callable[[Sequence[Any]], int] | None:
    """Returns a function from initial carried values to the trip count; None for a data-dependent loop."""
    bounds = _bounds_of(module, loop)
    if bounds is None:
        return None
    return lambda carry: min(bound.trips(carry) for bound in bounds)


def most_trips(module: Module, loop: Any) -> int | None:
    """Returns an upper bound of the trip count of a counted `stablehlo.while`; None if the program does not tell.

    A limit may be the counter of another loop after it, as in the loop that computes the gradients of one.
    """
    known = []
    for bound in _bounds_of(module, loop) or ():
        start = _at_most(module, loop.operands[bound.index.index], exactly=True)
        limit = bound.limit if isinstance(bound.limit, int) else _at_most(module, loop.operands[bound.limit.index])
        if start is not None and limit is not None:
            known.append(dataclasses.replace(bound, index=CarriedValue(0), limit=limit).trips((start,)))
    return min(known, default=None)


def _bounds_of(module: Module, loop: Any) -> list[LoopBound] | None:
    """Returns the bounds whose conjunction is a loop's condition; None for a data-dependent loop."""
    condition, body = (region.blocks[0] for region in loop.regions)
    found = _bounds(module, _returned(condition)[0], {}, _returned(body))
    return None if not found or None in found else [bound for bound in found if bound is not None]


def _at_most(module: Module, value: Any, exactly: bool = False) -> int | None:
    """Returns the maximum of an integer computed outside of loops; None if unknown."""
    value = _behind(value, {})
    operation = _operation(value)
    if operation is None:
        return None
    if operation.name != "stablehlo.while" or exactly:
        return _constant(operation)
    place = list(operation.results).index(value)
    step = _step(CarriedValue(place), _returned(operation.regions[1].blocks[0]))
    start, trips = _at_most(module, operation.operands[place]), most_trips(module, operation)
    return None if step is None or step < 0 or start is None or trips is None else start + step * trips


def _returned(block: Any) -> Any:
    return block.operations[len(block.operations) - 1].operands


def _bounds(module: Module, value: Any, arguments: dict[Any, Any], next_values: Any) -> list[LoopBound | None]:
    """Returns the bounds whose conjunction is a value; None for a conjunct that is no bound."""
    value = _behind(value, arguments)
    operation = _operation(value)
    if operation is None:
        return [None]
    if _always(operation):
        return []
    if operation.name == "stablehlo.and":
        left, right = operation.operands
        return _bounds(module, left, arguments, next_values) + _bounds(module, right, arguments, next_values)
    if operation.name == "func.call":
        block = module.functions[callee(operation)]
        inner = dict(zip(block.arguments, (_behind(o, arguments) for o in operation.operands), strict=True))
        position = list(operation.results).index(value)
        return _bounds(module, _returned(block)[position], {**arguments, **inner}, next_values)
    if operation.name == "stablehlo.compare":
        return [_bound(operation, arguments, next_values)]
    return [None]


def _bound(compare: Any, arguments: dict[Any, Any], next_values: Any) -> LoopBound | None:
    direction = Op(compare).word("comparison_direction")
    left, right = (_operand(value, arguments) for value in compare.operands)
    if direction in ("GT", "GE"):
        left, right, direction = right, left, {"GT": "LT", "GE": "LE"}[direction]
    if direction not in ("LT", "LE") or not isinstance(left, CarriedValue) or right is None:
        return None
    if isinstance(right, CarriedValue) and _step(right, next_values) != 0:
        return None
    step = _step(left, next_values)
    return LoopBound(left, right, step, direction == "LE") if step is not None and step > 0 else None


def _operand(value: Any, arguments: dict[Any, Any]) -> CarriedValue | int | None:
    value = _behind(value, arguments)
    operation = _operation(value)
    if operation is None:
        return CarriedValue(ir.BlockArgument(value).arg_number)
    return _constant(operation)


def _step(carried: CarriedValue, next_values: Any) -> int | None:
    """Returns the constant that the body adds to a carried value; None if it is not constant."""
    value = _behind(next_values[carried.index], {})
    operation = _operation(value)
    if operation is None:
        return 0 if ir.BlockArgument(value).arg_number == carried.index else None
    if operation.name != "stablehlo.add":
        return None
    left, right = (_operand(term, {}) for term in operation.operands)
    if isinstance(right, CarriedValue):
        left, right = right, left
    return right if left == carried and isinstance(right, int) else None


def _behind(value: Any, arguments: dict[Any, Any]) -> Any:
    """Follows a value back through identities and calls."""
    while True:
        operation = _operation(value)
        if value in arguments:
            value = arguments[value]
        elif operation is not None and operation.name in _SAME_VALUE:
            value = operation.operands[0]
        else:
            return value


def _operation(value: Any) -> Any:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else getattr(owner, "operation", owner)


def _always(operation: Any) -> bool:
    """Returns whether an operation is the constant `true`."""
    if operation.name != "stablehlo.constant" or "i1" not in str(operation.results[0].type):
        return False
    return bool(np.array(ir.DenseElementsAttr(operation.attributes["value"])).all())


def _constant(operation: Any) -> int | None:
    if operation.name != "stablehlo.constant":
        return None
    value = operation.attributes["value"]
    if not isinstance(value, ir.DenseIntElementsAttr):
        return None
    array = np.array(value)
    return int(array.ravel()[0]) if array.size == 1 else None
