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
from ipu_tf.lowering.stablehlo.op import Op, array_type

_SAME_VALUE = ("stablehlo.reshape", "mhlo.copy", "stablehlo.optimization_barrier")


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
        most: the greatest index that its dtype has; the next one wraps around.
    """

    index: CarriedValue
    limit: CarriedValue | int
    step: int
    inclusive: bool
    most: int

    def trips(self, carry: Sequence[Any]) -> tuple[int, bool]:
        """Computes the iterations from a start until the bound is reached.

        Returns:
            The iterations, and whether the bound is reached: the last addition did not wrap the index around.
        """
        start = int(np.asarray(carry[self.index.index]))
        limit = int(np.asarray(carry[self.limit.index])) if isinstance(self.limit, CarriedValue) else self.limit
        trips = max(0, -(-(limit + int(self.inclusive) - start) // self.step))
        return trips, start + trips * self.step <= self.most


def trip_count(module: Module, loop: Any) -> Callable[[Sequence[Any]], int | None] | None:
    """Returns a function from initial carried values to the trip count; None for a data-dependent loop.

    The function gives None where the index wraps around, as `i <= 127` of int8 does: then the loop depends on data too.
    """
    bounds = _bounds_of(module, loop)
    if bounds is None:
        return None

    def count(carry: Sequence[Any]) -> int | None:
        found = [bound.trips(carry) for bound in bounds]
        least = min(trips for trips, _ in found)
        return least if (least, True) in found else None

    return count


def is_counted_by_constants(module: Module, loop: Any) -> bool:
    """Returns whether a loop's trip count is in the program itself: it is the same in every replica and every run."""
    bounds = _bounds_of(module, loop)
    if bounds is None:
        return False
    carried = [each for bound in bounds for each in (bound.index, bound.limit) if isinstance(each, CarriedValue)]
    return all(_at_most(module, loop.operands[each.index], exactly=True) is not None for each in carried)


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
    return min((trips for trips, reached in known if reached), default=None)


def _bounds_of(module: Module, loop: Any) -> list[LoopBound] | None:
    """Returns the bounds whose conjunction is a loop's condition; None for a data-dependent loop."""
    condition, body = (region.blocks[0] for region in loop.regions)
    found = _bounds(module, condition, body)
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
    step = _step(CarriedValue(place), operation.regions[1].blocks[0])
    start, trips = _at_most(module, operation.operands[place]), most_trips(module, operation)
    return None if step is None or step < 0 or start is None or trips is None else start + step * trips


def known_bounds(module: Module, loop: Any) -> list[LoopBound]:
    """Returns those bounds of a loop's condition that the program tells; others may end the loop before."""
    condition, body = (region.blocks[0] for region in loop.regions)
    return [bound for bound in _bounds(module, condition, body) if bound is not None]


def known_floors(module: Module, loop: Any) -> list[tuple[CarriedValue, int]]:
    """Returns the carried values, with the least integer of each, that a loop's condition wants to be that at least."""
    condition = loop.regions[0].blocks[0]
    floors = _conjuncts(module, returned(condition)[0], {}, lambda compare, names: _floor(compare, names, condition))
    return [floor for floor in floors if floor is not None]


def behind(value: Any) -> Any:
    """Follows a value back through identities."""
    return _behind(value, {})


def returned(block: Any) -> Any:
    """Returns the values that a block returns."""
    return block.operations[len(block.operations) - 1].operands


def _bounds(module: Module, condition: Any, body: Any) -> list[LoopBound | None]:
    """Returns the bounds whose conjunction is a condition; None for a conjunct that is no bound."""
    return _conjuncts(
        module, returned(condition)[0], {}, lambda compare, names: _bound(compare, names, condition, body)
    )


def _conjuncts(
    module: Module, value: Any, arguments: dict[Any, Any], found: Callable[[Any, dict[Any, Any]], Any]
) -> list[Any]:
    """Returns what a function finds in each comparison whose conjunction is a value; None for another conjunct.

    Args:
        module: the module.
        value: the value.
        arguments: what the arguments of functions stand for.
        found: a function of a comparison and these arguments.
    """
    value = _behind(value, arguments)
    operation = _operation(value)
    if operation is None:
        return [None]
    if _always(operation):
        return []
    if operation.name == "stablehlo.and":
        left, right = operation.operands
        return _conjuncts(module, left, arguments, found) + _conjuncts(module, right, arguments, found)
    if operation.name == "func.call":
        block = module.functions[callee(operation)]
        inner = dict(zip(block.arguments, (_behind(o, arguments) for o in operation.operands), strict=True))
        position = list(operation.results).index(value)
        return _conjuncts(module, returned(block)[position], {**arguments, **inner}, found)
    return [found(operation, arguments) if operation.name == "stablehlo.compare" else None]


def _floor(compare: Any, arguments: dict[Any, Any], condition: Any) -> tuple[CarriedValue, int] | None:
    """Parses `index >= floor` or `index > floor`; returns the carried index and its least integer."""
    direction = Op(compare).word("comparison_direction")
    left, right = (_operand(value, arguments, condition) for value in compare.operands)
    if direction in ("LT", "LE"):
        left, right, direction = right, left, {"LT": "GT", "LE": "GE"}[direction]
    if direction not in ("GT", "GE") or not isinstance(left, CarriedValue) or not isinstance(right, int):
        return None
    return left, right + (direction == "GT")


def _bound(compare: Any, arguments: dict[Any, Any], condition: Any, body: Any) -> LoopBound | None:
    direction = Op(compare).word("comparison_direction")
    left, right = (_operand(value, arguments, condition) for value in compare.operands)
    if direction in ("GT", "GE"):
        left, right, direction = right, left, {"GT": "LT", "GE": "LE"}[direction]
    if direction not in ("LT", "LE") or not isinstance(left, CarriedValue) or right is None:
        return None
    if isinstance(right, CarriedValue) and _step(right, body) != 0:
        return None
    step = _step(left, body)
    if step is None or step <= 0:
        return None
    dtype = array_type(str(body.arguments[left.index].type)).dtype
    return LoopBound(left, right, step, direction == "LE", int(np.iinfo(dtype).max)) if dtype.kind in "iu" else None


def _operand(value: Any, arguments: dict[Any, Any], block: Any) -> CarriedValue | int | None:
    """Returns which carried value of a loop or which constant a value is, in the loop's condition or body."""
    value = _behind(value, arguments)
    operation = _operation(value)
    if operation is None:
        return CarriedValue(ir.BlockArgument(value).arg_number) if value.owner == block else None
    return _constant(operation)


def _step(carried: CarriedValue, body: Any) -> int | None:
    """Returns the constant that the body adds to a carried value; None if it is not constant."""
    value = _behind(returned(body)[carried.index], {})
    operation = _operation(value)
    if operation is None:
        return 0 if _operand(value, {}, body) == carried else None
    if operation.name != "stablehlo.add":
        return None
    left, right = (_operand(term, {}, body) for term in operation.operands)
    if isinstance(right, CarriedValue):
        left, right = right, left
    return right if left == carried and isinstance(right, int) else None


def _behind(value: Any, arguments: dict[Any, Any]) -> Any:
    """Follows a value back through identities and calls."""
    while True:
        operation = _operation(value)
        if value in arguments:
            value = arguments[value]
        elif operation is not None and _is_identity(operation):
            value = operation.operands[list(operation.results).index(value)]
        else:
            return value


def _is_identity(operation: Any) -> bool:
    """Returns whether the results of an op are the integers of its operands; a conversion may cut them off."""
    if operation.name != "stablehlo.convert":
        return operation.name in _SAME_VALUE
    before, after = (array_type(str(v.type)).dtype for v in (operation.operands[0], operation.results[0]))
    return before.kind in "iub" and after.kind in "iu" and np.can_cast(before, after, "safe")


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
