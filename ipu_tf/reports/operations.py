"""Lists the operations of a jaxpr with the values that they read and make; calls are replaced by what they call.

Operations whose results no other reads are left out, as XLA does not compute them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ipu_tf.reports.known_integers import KnownIntegers

_LOOPS_AND_BRANCHES = ("while", "scan", "cond")
_WITH_FUNCTIONS = (*_LOOPS_AND_BRANCHES, "reduce", "reduce_window")
"""Operations whose functions are no calls: those of reductions take two numbers."""
_GRADIENTS = "gradient_tape"
"""The scope of TensorFlow's gradients."""


@dataclasses.dataclass
class Buffer:
    """A value while liveness is found out.

    Attributes:
        name: what makes it.
        bytes: its size.
    """

    name: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class Listed:
    """An operation with its values.

    Attributes:
        name: its scopes and its primitive.
        reads: places of the values that it reads in the list of buffers.
        makes: places of those that it makes.
        equation: JAX's, whose loops and branches are not listed.
        trips: how often a `while` runs, where that is known.
    """

    name: str
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    equation: Any
    trips: int | None = None


class Listing:
    """Operations of a jaxpr in order, and their values.

    Args:
        jaxpr: a `jax.core.Jaxpr`.
        inputs: the values of its inputs, one each; then others that are alive meanwhile.

    Attributes:
        buffers: all values: inputs, constants, then those of operations.
        operations: the operations.
        outputs: places of the results in `buffers`; those of literals are left out.
        constants: places of the constants in `buffers`.
    """

    def __init__(self, jaxpr: Any, inputs: Sequence[Buffer]) -> None:
        self.buffers: list[Buffer] = list(inputs)
        self.operations: list[Listed] = []
        self.constants: list[int] = []
        found = self._list(jaxpr, range(len(jaxpr.invars)), "", KnownIntegers())
        self.outputs = tuple(place for place in found if place is not None)
        self._remove_unused()

    def _remove_unused(self) -> None:
        """Removes operations whose values no other reads, as XLA does, and these values."""
        needed, kept = set(self.outputs), []
        for operation in reversed(self.operations):
            if operation.equation.effects or needed.intersection(operation.makes):
                needed.update(operation.reads, operation.makes)
                kept.append(operation)
        gone = {place for each in self.operations for place in each.makes} - needed
        new = dict(zip((p for p in range(len(self.buffers)) if p not in gone), itertools.count(), strict=False))
        self.buffers = [self.buffers[place] for place in new]
        self.operations = [
            dataclasses.replace(each, reads=_moved(each.reads, new), makes=_moved(each.makes, new))
            for each in reversed(kept)
        ]
        self.outputs, self.constants = _moved(self.outputs, new), list(_moved(self.constants, new))

    def _list(
        self, jaxpr: Any, arguments: Sequence[int | None], scope: str, numbers: KnownIntegers
    ) -> list[int | None]:
        """Lists a jaxpr that is called with these values; returns its results. None stands for a literal."""
        places: dict[Any, int | None] = dict(zip(jaxpr.invars, arguments, strict=True))
        for variable in jaxpr.constvars:
            places[variable] = self._add("constant", variable)
            self.constants.append(len(self.buffers) - 1)

        def read(atoms: Sequence[Any]) -> list[int | None]:
            return [None if hasattr(atom, "val") else places[atom] for atom in atoms]

        for equation in jaxpr.eqns:
            within = _without_repetition(_joined(scope, str(equation.source_info.name_stack)))
            if equation.primitive.name == "optimization_barrier":  # it passes on what it takes
                places.update(zip(equation.outvars, read(equation.invars), strict=True))
                continue
            called = None if equation.primitive.name in _WITH_FUNCTIONS else _called(equation)
            if called is not None:
                inside = KnownIntegers(dict(zip(called.invars, numbers.read(equation.invars), strict=True)))
                results = self._list(called, read(equation.invars), within, inside)
                places.update(zip(equation.outvars, results, strict=True))
                numbers.give(equation.outvars, inside.read(called.outvars))
                continue
            name = _joined(within, equation.primitive.name)
            reads = tuple(place for place in read(equation.invars) if place is not None)
            makes = tuple(map(self._add, _result_names(name, len(equation.outvars)), equation.outvars))
            places.update(zip(equation.outvars, makes, strict=True))
            self.operations.append(Listed(name, reads, makes, equation, numbers.note(equation)))
        return read(jaxpr.outvars)

    def _add(self, name: str, variable: Any) -> int:
        self.buffers.append(Buffer(name, bytes_of_type(variable.aval)))
        return len(self.buffers) - 1


def _result_names(operation: str, results: int) -> list[str]:
    """Returns the names of an operation's results: its own, with numbers if there are several."""
    return [f"{operation} [{place}]" for place in range(results)] if results > 1 else [operation]


def _moved(places: Sequence[int], new: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(new[place] for place in places)


def bytes_of_type(aval: Any) -> int:
    """Returns the bytes of an array of a type; tokens count nothing."""
    if not hasattr(aval, "shape"):
        return 0
    return int(np.prod(aval.shape, dtype=np.int64)) * int(aval.dtype.itemsize)


def _joined(*names: str) -> str:
    return "/".join(filter(None, names))


@functools.lru_cache(4096)
def _without_repetition(name: str) -> str:
    """Returns a name without what TensorFlow repeats in the bodies of loops: `a/lstm/while/a/lstm/while` is once."""
    scopes = name.split("/")
    first = 1 if scopes[0] == _GRADIENTS else 0
    again = [
        place for place in range(first + 2, len(scopes) - 1) if scopes[place : place + 2] == scopes[first : first + 2]
    ]
    return "/".join((*scopes[:first], *scopes[again[-1] :])) if again else name


def _called(equation: Any) -> Any:
    """Returns the jaxpr of a call that takes and gives just what its equation does; None for another operation."""
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        closed = equation.params.get(key)
        jaxpr = getattr(closed, "jaxpr", closed)
        if hasattr(jaxpr, "eqns") and len(jaxpr.invars) == len(equation.invars):
            return jaxpr if len(jaxpr.outvars) == len(equation.outvars) else None
    return None
