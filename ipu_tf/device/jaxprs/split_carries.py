"""Splits arrays that a loop slices and stacks again, as caches of keys are: each part is carried by itself.

cache ─┬─slice─► layer 0 ─update─┬─stack─► cache          layer 0 ─update─► layer 0
       └─slice─► layer 1 ─update─┘                   as
                                                          layer 1 ─update─► layer 1
(a copy of each layer, and one of all)                   (a row of each is written in place)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core

from ipu_tf.device.jaxprs.array_regions import JOINS, ArrayRegions, Region
from ipu_tf.device.jaxprs.evaluation import Compute, bound, evaluate, needed, retraced
from ipu_tf.device.jaxprs.flat_equations import Equation, flattened, inner
from ipu_tf.device.op_scopes import scope_named

_State = list[tuple[Any, ...]]
"""What a loop carries: for each of its values the value, or the parts of one that is split."""


def with_split_carries(function: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """Returns a traced function whose loops carry the parts of stacked arrays; the same one if nothing changes.

    An array is split if a `while` loop's body stacks the next one, and the loop reads nothing of it but these parts.
    """
    if not _may_split(function.jaxpr):
        return function
    flat = flattened(function)
    otherwise = {each: compute for each in flat.equations if (compute := _rewritten(each)) is not None}
    if not otherwise:
        return function

    def run(arguments: Sequence[Any]) -> list[Any]:
        values = {**flat.constants, **dict(zip(flat.inputs, arguments, strict=True))}
        return evaluate(flat.equations, flat.outputs, values, otherwise)

    return retraced(function, run)


def _may_split(graph: core.Jaxpr) -> bool:
    """Returns whether a `while` loop in a jaxpr stacks as many elements as one of the arrays that it carries has."""
    for eqn in graph.eqns:
        if eqn.primitive.name == "while":
            body = eqn.params["body_jaxpr"].jaxpr
            carried = {math.prod(each.shape) for each in body.in_avals}
            if any(size in carried for size in _stacked_sizes(body)):
                return True
        if any(map(_may_split, inner(eqn))):
            return True
    return False


def _stacked_sizes(graph: core.Jaxpr) -> Iterator[int]:
    for eqn in graph.eqns:
        if eqn.primitive.name in JOINS:
            made: Any = eqn.outvars[0].aval
            yield math.prod(made.shape)
        for each in inner(eqn):
            yield from _stacked_sizes(each)


def _rewritten(equation: Equation) -> Compute | None:
    """Returns what evaluates a loop or a branch whose carries, or those of loops inside, are split."""
    given = equation.eqn.params
    match equation.name:
        case "while":
            changed: dict[str, Any] = {"body_jaxpr": with_split_carries(given["body_jaxpr"])}
            loop = _SplitLoop({**given, **changed}, equation.scope)
            if loop.splits:
                return loop.evaluated
        case "scan":
            changed = {"jaxpr": with_split_carries(given["jaxpr"])}
        case "cond":
            changed = {"branches": tuple(map(with_split_carries, given["branches"]))}
        case _:
            return None
    if all(jax.tree.leaves(given[name]) == jax.tree.leaves(new) for name, new in changed.items()):
        return None
    return lambda operands: bound(equation, operands, {**given, **changed})


@dataclasses.dataclass(frozen=True, eq=False)
class _Split:
    """A carried array of a loop's body that is split.

    Attributes:
        result: number of the next one.
        parts: numbers of the values that it is stacked of, and the regions where they are.
        shown: numbers of the values that are a part of the argument, and which.
    """

    result: int
    parts: Mapping[int, Region]
    shown: Mapping[int, int]


class _SplitLoop:
    """A `while` loop that carries some of its arrays in parts.

    Args:
        parameters: of the loop.
        scope: its name scopes.
    """

    def __init__(self, parameters: Mapping[str, Any], scope: str) -> None:
        self._scope = scope
        self._flat, self._condition = flattened(parameters["body_jaxpr"]), flattened(parameters["cond_jaxpr"])
        self._regions = ArrayRegions(self._flat)
        self._first, self._first_of_condition = parameters["body_nconsts"], parameters["cond_nconsts"]
        _, self._tested = needed(self._condition, self._condition.outputs, ())
        [goes_on] = parameters["cond_jaxpr"].out_avals
        # Replicas that stop one after the other have a condition each, which `lax.while_loop` does not take.
        places = range(0 if goes_on.shape else len(self._flat.outputs))
        self.splits = {place: split for place in places if (split := self._split(place))}
        outputs = enumerate(self._flat.outputs)
        self._results = [[*self.splits[n].parts] if n in self.splits else [each] for n, each in outputs]
        read = {value for split in self.splits.values() for value in split.shown}
        self._body, _ = needed(self._flat, [atom for each in self._results for atom in each], read)

    def evaluated(self, operands: Sequence[Any]) -> list[Any]:
        """Returns what the loop's values are at its end."""
        of_condition, of_body = self._first_of_condition, self._first_of_condition + self._first

        def condition(state: _State) -> Any:
            given = [*operands[:of_condition], *(each[0] for each in state)]  # a part of what it does not read
            values = {**self._condition.constants, **dict(zip(self._condition.inputs, given, strict=True))}
            return evaluate(self._condition.equations, self._condition.outputs, values)[0]

        def body(state: _State) -> _State:
            return self._next(operands[of_condition:of_body], state)

        first = [self._divided(place, value) for place, value in enumerate(operands[of_body:])]
        with scope_named(self._scope):
            return self._whole(lax.while_loop(condition, body, first))

    def _split(self, place: int) -> _Split | None:
        """Returns how a carried value is split; None if it is carried as it is."""
        argument, result, types = self._flat.inputs[self._first + place], self._flat.outputs[place], self._flat.types
        if self._condition.inputs[self._first_of_condition + place] in self._tested:
            return None
        if not isinstance(result, int) or types[argument] != types[result] or types[result].size < 2:
            return None
        stacked = self._regions.stacked(result)
        parts = {part: region for region, part in stacked.items() if isinstance(part, int)}
        if len(parts) < max(2, len(stacked)):
            return None
        places = {region: n for n, region in enumerate(parts.values())}
        regions = self._regions.shown(argument).items()
        shown = {value: places[region] for value, region in regions if region in places}
        others = [each for n, each in enumerate(self._flat.outputs) if n != place]
        _, read = needed(self._flat, [*others, *parts], shown)
        return None if argument in read else _Split(result, parts, shown)

    def _divided(self, place: int, value: Any) -> tuple[Any, ...]:
        if place not in self.splits:
            return (value,)
        parts, types = self.splits[place].parts, self._flat.types
        return tuple(lax.slice(value, at.starts, at.limits).reshape(types[part].shape) for part, at in parts.items())

    def _whole(self, state: _State) -> list[Any]:
        return [self._stacked(self.splits[n], each) if n in self.splits else each[0] for n, each in enumerate(state)]

    def _stacked(self, split: _Split, parts: tuple[Any, ...]) -> Any:
        equations, _ = needed(self._flat, [split.result], split.parts, effects=False)
        values = dict(zip(split.parts, parts, strict=True))
        return evaluate(equations, [split.result], values)[0]

    def _next(self, constants: Sequence[Any], state: _State) -> _State:
        """Evaluates the body."""
        values = {**self._flat.constants, **dict(zip(self._flat.inputs, constants, strict=False))}
        for place, carried in enumerate(state):
            if place in self.splits:
                shown = self.splits[place].shown.items()
                values |= {value: carried[part].reshape(self._flat.types[value].shape) for value, part in shown}
            else:
                values[self._flat.inputs[self._first + place]] = carried[0]
        results = iter(evaluate(self._body, [atom for each in self._results for atom in each], values))
        return [tuple(next(results) for _ in each) for each in self._results]
