"""`KnownIntegers`: integers of a jaxpr that are known before it runs, and how often its `while` loops run by them.

i = 0; while i < 20 and j < n: i += 1; j += 2          20, or less: n is known, or the result of such a loop
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

_Linear = tuple[int | None, int]
"""A value of the loop's carry by its place, None for none, and what is added to it."""
_SAME = frozenset(["broadcast_in_dim", "convert_element_type", "copy", "copy_p", "reshape", "squeeze"])
_COMPARISONS = frozenset(["lt", "le", "gt", "ge", "ne"])
_FOR_EVER = 2**64
"""Iterations of a comparison that always holds."""


class KnownIntegers:
    """Integers that are known, or that differ from the carry of a loop by a known number.

    Args:
        given: those of the jaxpr's inputs, by variable.
    """

    def __init__(self, given: Mapping[Any, _Linear | None] | None = None) -> None:
        self._found = {variable: value for variable, value in (given or {}).items() if value is not None}

    def read(self, atoms: Sequence[Any]) -> list[_Linear | None]:
        """Returns what is known of some values; None where nothing is."""
        return [self._read(atom) for atom in atoms]

    def note(self, equation: Any) -> int | None:
        """Notes the results of an equation, once for each in order; returns how often it runs if it is a `while`."""
        if equation.primitive.name == "while":
            return self._loop(equation)
        if len(equation.outvars) == 1 and _is_integer(equation.outvars[0].aval):
            made = _made(equation.primitive.name, self.read(equation.invars))
            if made is not None:
                self._found[equation.outvars[0]] = made
        return None

    def give(self, variables: Sequence[Any], values: Sequence[_Linear | None]) -> None:
        """Notes what a call returned."""
        self._found |= {each: value for each, value in zip(variables, values, strict=True) if value is not None}

    def _read(self, atom: Any) -> _Linear | None:
        if hasattr(atom, "val"):
            return (None, int(atom.val)) if _is_integer(atom.aval) else None
        return self._found.get(atom)

    def _loop(self, equation: Any) -> int | None:
        params, given = equation.params, self.read(equation.invars)
        of_condition, of_body = params["cond_nconsts"], params["body_nconsts"]
        condition, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
        begin = given[of_condition + of_body :]
        inside = _inside(body, given[of_condition : of_condition + of_body])
        for each in body.eqns:
            inside.note(each)
        grows = [
            value[1] if value is not None and value[0] == place else None
            for place, value in enumerate(inside.read(body.outvars))
        ]
        trips = _Condition(begin, grows).trips(condition, _inside(condition, given[:of_condition]))
        for variable, first, by in zip(equation.outvars, begin, grows, strict=True):
            if trips is not None and first is not None and by is not None:
                self._found[variable] = (first[0], first[1] + trips * by)
        return trips


def _inside(jaxpr: Any, constants: Sequence[_Linear | None]) -> KnownIntegers:
    """Returns what is known in a loop's body or condition; what depends on a loop around it is not."""
    known = [value if value is not None and value[0] is None else None for value in constants]
    carry: list[_Linear | None] = [(place, 0) for place in range(len(jaxpr.invars) - len(known))]
    numbers = zip(jaxpr.invars, [*known, *carry], strict=True)
    return KnownIntegers({variable: value for variable, value in numbers if _is_integer(variable.aval)})


class _Condition:
    """How often a loop's condition holds.

    Args:
        begin: what is known of the carry before the loop.
        grows: by how much each value of the carry grows in an iteration; None where that is not known.
    """

    def __init__(self, begin: Sequence[_Linear | None], grows: Sequence[int | None]) -> None:
        self._begin, self._grows = begin, grows

    def trips(self, condition: Any, known: KnownIntegers) -> int | None:
        """Returns the number of iterations; None if it is not known."""
        holds: dict[Any, int] = {}
        for each in condition.eqns:
            known.note(each)
            name, taken = each.primitive.name, [a for a in each.invars if not hasattr(a, "val")]
            if name in _COMPARISONS:
                held = self._compared(name, *known.read(each.invars))
            elif name == "and" or name in _SAME:
                of = [holds.get(atom) for atom in taken]
                held = None if len(of) < len(each.invars) or None in of else min(n for n in of if n is not None)
            else:
                held = None
            if held is not None:
                holds[each.outvars[0]] = held
        [result] = condition.outvars
        trips = _FOR_EVER if hasattr(result, "val") else holds.get(result, _FOR_EVER)
        return None if trips == _FOR_EVER else trips

    def _compared(self, name: str, one: _Linear | None, other: _Linear | None) -> int | None:
        """Returns how many iterations pass before a comparison fails."""
        if name in ("gt", "ge"):
            one, other = other, one
        low, high = self._line(one), self._line(other)
        if low is None or high is None:
            return None
        left, by = high[0] - low[0], low[1] - high[1]  # `left` shrinks `by` in each iteration
        if name == "ne":
            if by % 2 == 0 and left % 2:
                return _FOR_EVER  # one is even, one odd, also where they wrap around
            return left // by if by and left % by == 0 and left // by >= 0 else 0 if left == 0 else None
        left += name in ("le", "ge")
        return 0 if left <= 0 else math.ceil(left / by) if by > 0 else None

    def _line(self, value: _Linear | None) -> tuple[int, int] | None:
        """Returns a value before the loop, and by how much it grows."""
        if value is None or value[0] is None:
            return None if value is None else (value[1], 0)
        first, by = self._begin[value[0]], self._grows[value[0]]
        return None if first is None or first[0] is not None or by is None else (first[1] + value[1], by)


def _made(name: str, operands: Sequence[_Linear | None]) -> _Linear | None:
    """Returns what an operation makes of integers."""
    known = [each for each in operands if each is not None]
    if not known or len(known) < len(operands):
        return None
    if name in _SAME and len(known) == 1:
        return known[0]
    if name == "add" and None in (known[0][0], known[1][0]):
        base = known[0][0] if known[1][0] is None else known[1][0]
        return base, known[0][1] + known[1][1]
    if name == "sub" and known[1][0] is None:
        return known[0][0], known[0][1] - known[1][1]
    if any(base is not None for base, _ in known) or name not in ("mul", "min", "max"):
        return None
    numbers = [number for _, number in known]
    return None, math.prod(numbers) if name == "mul" else min(numbers) if name == "min" else max(numbers)


def _is_integer(aval: Any) -> bool:
    return bool(hasattr(aval, "shape") and math.prod(aval.shape) == 1 and jnp.issubdtype(aval.dtype, jnp.integer))
