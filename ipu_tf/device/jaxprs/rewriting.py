"""Rewrites flat jaxprs: traced functions in the place of equations."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from ipu_tf.device.jaxprs.evaluation import needed
from ipu_tf.device.jaxprs.flat_equations import Atom, Equation, FlatFunction, flattened


class Rewriting:
    """A flat function that is being rewritten.

    Args:
        function: the function. It stays as it is.
    """

    def __init__(self, function: FlatFunction) -> None:
        self._function = function
        self._types = dict(function.types)
        self._numbers = itertools.count(max(function.types, default=-1) + 1)
        self._instead: dict[Equation, list[Equation]] = {}
        self._others: dict[Atom, int] = {}

    def new_value(self, kind: Any) -> int:
        """Returns the number of a new value of some shape and dtype."""
        number = next(self._numbers)
        self._types[number] = kind
        return number

    def replace(
        self, place: Equation, compute: Callable[..., Any], operands: Sequence[int], results: Sequence[int]
    ) -> None:
        """Lets a function make values in the place of an equation.

        Args:
            place: the equation. Whatever else it made must not be read any more.
            compute: traceable by JAX; of an array for each operand.
            operands: the values that it reads; they are made before.
            results: the values that it returns.
        """
        types = [self._types[value] for value in operands]
        traced = flattened(jax.make_jaxpr(compute)(*(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in types)))
        numbers: dict[Atom, int] = dict(zip(traced.inputs, operands, strict=True))
        numbers |= dict(zip(traced.outputs, results, strict=True))
        for equation in traced.equations:
            numbers |= {
                value: self.new_value(traced.types[value]) for value in equation.outputs if value not in numbers
            }
        instead = [
            dataclasses.replace(
                each,
                inputs=_renamed(each.inputs, numbers),
                outputs=tuple(numbers[value] for value in each.outputs),
                scope=place.scope,
            )
            for each in traced.equations
        ]
        self._rewrite(place, instead)

    def leave_out(self, *equations: Equation) -> None:
        """Leaves equations out: others make their results."""
        for each in equations:
            self._rewrite(each, [])

    def _rewrite(self, place: Equation, instead: list[Equation]) -> None:
        if place in self._instead:
            raise ValueError(f"wanted an equation that is not rewritten yet; received {place.name} again")
        self._instead[place] = instead

    def read_instead(self, value: int, other: int) -> None:
        """Lets everything that reads a value read another one, which is made before."""
        self._others[value] = other

    def rewritten(self) -> FlatFunction:
        """Returns the function; equations whose results nothing reads any more are left out."""
        equations = [new for each in self._function.equations for new in self._instead.get(each, [each])]
        equations = [dataclasses.replace(each, inputs=_renamed(each.inputs, self._others)) for each in equations]
        outputs = _renamed(self._function.outputs, self._others)
        whole = dataclasses.replace(self._function, equations=tuple(equations), outputs=outputs, types=self._types)
        kept, _ = needed(whole, outputs, ())
        return dataclasses.replace(whole, equations=tuple(kept))


@dataclasses.dataclass(frozen=True)
class Replacement:
    """A function in the place of an equation, which makes its results.

    Attributes:
        place: the equation.
        compute: traceable by JAX; of an array for each operand.
        operands: the values that it reads.
    """

    place: Equation
    compute: Callable[..., Any]
    operands: tuple[int, ...]


def replaced(function: FlatFunction, replacements: Sequence[Replacement]) -> FlatFunction:
    """Returns a function with replacements; itself if there are none."""
    if not replacements:
        return function
    rewriting = Rewriting(function)
    for each in replacements:
        rewriting.replace(each.place, each.compute, each.operands, each.place.outputs)
    return rewriting.rewritten()


def _renamed(atoms: Sequence[Atom], numbers: dict[Atom, int]) -> tuple[Atom, ...]:
    return tuple(numbers.get(atom, atom) if isinstance(atom, int) else atom for atom in atoms)
