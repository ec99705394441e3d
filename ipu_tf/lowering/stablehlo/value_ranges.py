"""Computes in which range the integers of a StableHLO value are, without running it.

With the ranges of loop counters, most indices of a program are known to be in range: they need no check.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ipu_tf.lowering.jax.jax_private import ir
from ipu_tf.lowering.stablehlo.module import Module, callee, walk
from ipu_tf.lowering.stablehlo.op import Op, array_type
from ipu_tf.lowering.stablehlo.range_arithmetic import TRANSFERS, Range, fits, joined, limits
from ipu_tf.lowering.stablehlo.trip_count import LoopBound, behind, known_bounds, known_floors, returned

_MOST_VALUES = 2000
_ROUNDS = 4


class ValueRanges:
    """Ranges of the integers of a module's values.

    Args:
        module: the module. Ranges of values are computed when they are asked for.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._calls: dict[Any, list[Any]] = {}
        for operation in walk(module.main, module.functions):
            if operation.name == "func.call" and operation not in self._calls.setdefault(callee(operation), []):
                self._calls[callee(operation)].append(operation)
        self._names = {block: name for name, block in module.functions.items()}
        self._known: dict[Any, Range | None] = {}
        self._begun: set[Any] = set()
        self._left = 0

    def of(self, value: Any) -> Range | None:
        """Returns the least and the greatest integer that a value can have, both inclusive; None if unknown."""
        self._left = _MOST_VALUES
        found = self._of(value)
        self._known = {value: known for value, known in self._known.items() if known is not None}
        return found

    def _of(self, value: Any) -> Range | None:
        if value not in self._known:
            self._left -= 1
            if value in self._begun or self._left < 0:
                return None  # it depends on itself
            self._begun.add(value)
            self._known[value] = self._computed(value)
            self._begun.discard(value)
        return self._known[value]

    def _computed(self, value: Any) -> Range | None:
        struct = _integers(value)
        if struct is None:
            return None
        if isinstance(value.owner, ir.Block):
            found = self._argument(ir.BlockArgument(value))
        else:
            operation = value.owner.operation
            found = self._transferred(operation, struct, list(operation.results).index(value))
        return found if found is not None and fits(found, struct.dtype) else None

    def _transferred(self, operation: Any, struct: Any, place: int) -> Range | None:
        """Returns the range of a result of an op, from its operands or regions."""
        inner = [self._of(value) for value in self._inner(operation, place)]
        if inner:
            return joined(inner)
        if operation.name == "stablehlo.constant":
            values = np.array(ir.DenseElementsAttr(operation.attributes["value"]))
            return (int(values.min()), int(values.max())) if values.size else None
        if operation.name == "stablehlo.iota":
            return (0, max(0, struct.shape[Op(operation).integer("iota_dimension")] - 1))
        if struct.dtype.kind == "b":
            return (0, 1)
        transfer = TRANSFERS.get(operation.name)
        return None if transfer is None else transfer([self._of(o) or _limits(o) for o in operation.operands])

    def _inner(self, operation: Any, place: int) -> list[Any]:
        """Returns the values of which a result of a loop, a branch or a call is one."""
        if operation.name == "func.call":
            return [returned(self._module.functions[callee(operation)])[place]]
        blocks = [region.blocks[0] for region in operation.regions]
        if operation.name == "stablehlo.while":
            return [operation.operands[place], returned(blocks[1])[place]]
        return [returned(b)[place] for b in blocks] if operation.name in ("stablehlo.if", "stablehlo.case") else []

    def _argument(self, argument: Any) -> Range | None:
        block, place = argument.owner, argument.arg_number
        if block in self._names:
            calls = self._calls.get(self._names[block], [])
            return joined([self._of(call.operands[place]) for call in calls]) if calls else None
        loop = block.owner.operation
        if loop.name != "stablehlo.while":
            return None
        if block == loop.regions[0].blocks[0]:
            return self._of(loop.results[place])
        return self._carried(loop, argument, place)

    def _carried(self, loop: Any, argument: Any, place: int) -> Range | None:
        """Returns the range of a carried value in the body of a loop."""
        start, following = self._of(loop.operands[place]), returned(loop.regions[1].blocks[0])[place]
        if start is None:
            return None
        added = self._added(argument, following)
        return self._kept(argument, start, following) if added is None else self._counted(loop, place, start, added)

    def _added(self, argument: Any, following: Any) -> Range | None:
        """Returns the range of what the body of a loop adds to a carried value; None if it does something else."""
        following = behind(following)
        if following == argument:
            return (0, 0)
        operation = None if isinstance(following.owner, ir.Block) else following.owner.operation
        if operation is None or operation.name not in ("stablehlo.add", "stablehlo.subtract"):
            return None
        terms = [operand for operand in operation.operands if behind(operand) != argument]
        if len(terms) != 1 or (operation.name == "stablehlo.subtract" and behind(operation.operands[0]) != argument):
            return None
        added = self._of(terms[0])
        return (-added[1], -added[0]) if added and operation.name == "stablehlo.subtract" else added

    def _counted(self, loop: Any, place: int, start: Range, added: Range) -> Range | None:
        """Returns the range of a counter in the body of a loop, unless its dtype may be too small for it."""
        if added == (0, 0):
            return start
        dtype = _integers(loop.operands[place]).dtype
        bounds = known_bounds(self._module, loop)
        # What the condition says of the counter holds in the body, also if the counter wraps around.
        most = [
            last for bound in bounds if bound.index.index == place and (last := self._last(loop, bound)) is not None
        ]
        least = [floor for index, floor in known_floors(self._module, loop) if index.index == place]
        trips = min((t for bound in bounds if (t := self._trips(loop, bound)) is not None), default=None)
        if trips is not None:
            more = max(0, trips - 1)
            whole = (start[0] + min(0, added[0]) * more, start[1] + max(0, added[1]) * more)
            if fits(whole, dtype):
                least.append(whole[0])
                most.append(whole[1])
        if added[0] >= 0 and most and fits((0, min(most) + added[1]), dtype):
            least.append(start[0])
        if added[1] <= 0 and least and fits((max(least) + added[0], 0), dtype):
            most.append(start[1])
        return (max(least), max(max(least), min(most))) if least and most else None

    def _kept(self, argument: Any, start: Range, following: Any) -> Range | None:
        """Returns a range that the body of a loop does not leave, found by trying."""
        tried = start
        for _ in range(_ROUNDS):
            with self._assuming(argument, tried):
                after = self._of(following)
            if after is None:
                return None
            wider = (min(tried[0], after[0]), max(tried[1], after[1]))
            if wider == tried:
                return tried
            tried = wider
        return None

    @contextlib.contextmanager
    def _assuming(self, argument: Any, assumed: Range) -> Iterator[None]:
        """Context manager: an argument is in a range; what follows from it is forgotten at its end."""
        before, self._known = self._known, {**self._known, argument: assumed}
        begun, self._begun = self._begun, set()
        try:
            yield
        finally:
            self._known, self._begun = before, begun

    def _trips(self, loop: Any, bound: LoopBound) -> int | None:
        """Returns an upper bound of a loop's trip count; None if the index may wrap around before it ends the loop."""
        index = loop.operands[bound.index.index]
        start, last = self._of(index), self._last(loop, bound)
        if (
            start is None
            or last is None
            or not fits((start[0], max(start[0], last + bound.step)), _integers(index).dtype)
        ):
            return None
        return max(0, (last - start[0]) // bound.step + 1)

    def _last(self, loop: Any, bound: LoopBound) -> int | None:
        """Returns the greatest index of a bound with which the body of a loop runs."""
        limit = bound.limit
        most = (limit, limit) if isinstance(limit, int) else self._of(loop.operands[limit.index])
        return None if most is None else most[1] - (not bound.inclusive)


def _integers(value: Any) -> Any:
    """Returns shape and dtype of a tensor of integers or booleans; None for any other value."""
    try:
        struct = array_type(str(value.type))
    except NotImplementedError:
        return None  # of a shape that depends on values: it is refused later
    return struct if struct.dtype.kind in "iub" else None


def _limits(value: Any) -> Range | None:
    """Returns the range of the dtype of a value, where it is one of integers."""
    struct = _integers(value)
    return None if struct is None else limits(struct.dtype)
