"""Flattens a jaxpr: calls are replaced by what they call, and variables by numbers."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.extend import core

Atom = int | core.Literal
"""The number of a value, or a constant."""

_CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
}
"""Primitives that only call a jaxpr, and the parameter that it is in."""


@dataclasses.dataclass(frozen=True, eq=False)
class Equation:
    """One equation of a flat jaxpr.

    Attributes:
        eqn: JAX's own equation: its primitive and parameters.
        inputs: values and constants.
        outputs: numbers of the values that it makes.
        scope: its name scopes, those of the calls around it included, with slashes between them.
    """

    eqn: core.JaxprEqn
    inputs: tuple[Atom, ...]
    outputs: tuple[int, ...]
    scope: str = ""

    @property
    def name(self) -> str:
        """Name of its primitive."""
        return self.eqn.primitive.name

    @property
    def values(self) -> tuple[int, ...]:
        """Numbers of the values among its inputs."""
        return tuple(atom for atom in self.inputs if isinstance(atom, int))


@dataclasses.dataclass(frozen=True, eq=False)
class FlatFunction:
    """A jaxpr without calls.

    Attributes:
        inputs: numbers of its arguments.
        constants: arrays that it closes over, by number.
        equations: in an order in which they can be evaluated.
        outputs: values and constants that it returns.
        types: shape and dtype of each value.
    """

    inputs: tuple[int, ...]
    constants: dict[int, Any]
    equations: tuple[Equation, ...]
    outputs: tuple[Atom, ...]
    types: dict[int, Any]

    @functools.cached_property
    def made_by(self) -> dict[int, Equation]:
        """The equation that makes each value, but for arguments and constants."""
        return {number: each for each in self.equations for number in each.outputs}


def inner(eqn: core.JaxprEqn) -> Iterator[core.Jaxpr]:
    """Yields the jaxprs of an equation: of calls, loops, branches."""
    for parameter in eqn.params.values():
        for each in parameter if isinstance(parameter, tuple | list) else (parameter,):
            if isinstance(each, core.ClosedJaxpr | core.Jaxpr):
                yield each.jaxpr if isinstance(each, core.ClosedJaxpr) else each


def flattened(function: core.ClosedJaxpr) -> FlatFunction:
    """Returns a traced function without calls; loops, branches and what is mapped over devices stay."""
    return _Flattening().run(function)


class _Flattening:
    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._types: dict[int, Any] = {}
        self._constants: dict[int, Any] = {}

    def run(self, function: core.ClosedJaxpr) -> FlatFunction:
        inputs = tuple(self._new(var) for var in function.jaxpr.invars)
        equations: list[Equation] = []
        outputs = self._flatten(function, inputs, equations)
        return FlatFunction(inputs, self._constants, tuple(equations), outputs, self._types)

    def _new(self, var: Any) -> int:
        number = next(self._numbers)
        self._types[number] = var.aval
        return number

    def _flatten(
        self, function: core.ClosedJaxpr, inputs: Sequence[Atom], into: list[Equation], around: str = ""
    ) -> tuple[Atom, ...]:
        graph = function.jaxpr
        atoms: dict[Any, Atom] = dict(zip(graph.invars, inputs, strict=True))
        for var, value in zip(graph.constvars, function.consts, strict=True):
            number = self._new(var)
            self._constants[number] = value
            atoms[var] = number

        def read(atom: Any) -> Atom:
            return atom if isinstance(atom, core.Literal) else atoms[atom]

        for eqn in graph.eqns:
            operands = tuple(map(read, eqn.invars))
            called, scope = _called(eqn), f"{around}/{eqn.source_info.name_stack}".strip("/")
            if called is not None:
                results: tuple[Atom, ...] = self._flatten(called, operands, into, scope)
            else:
                numbers = tuple(self._new(var) for var in eqn.outvars)
                into.append(Equation(eqn, operands, numbers, scope))
                results = numbers
            atoms.update(zip(eqn.outvars, results, strict=True))
        return tuple(map(read, graph.outvars))


def _called(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """Returns what an equation calls, if it does nothing else."""
    called = eqn.params.get(_CALLS.get(eqn.primitive.name, ""))
    if not isinstance(called, core.ClosedJaxpr):
        return None
    return None if any(isinstance(each, jax.sharding.Sharding) for each in _shardings(eqn)) else called


def _shardings(eqn: core.JaxprEqn) -> Iterator[Any]:
    for name in ("in_shardings", "out_shardings"):
        yield from eqn.params.get(name, ())
