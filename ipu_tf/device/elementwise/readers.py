"""Finds what reads a value of a flat function: behind reshapes and broadcasts, which only show it."""

from __future__ import annotations

from collections import defaultdict

from ipu_tf.device.elementwise.views import Views
from ipu_tf.device.jaxprs.flat_equations import Equation, FlatFunction


class Readers:
    """Equations that read a value, or another view of it.

    Args:
        function: the function.
    """

    def __init__(self, function: FlatFunction) -> None:
        self._views = Views(function)
        self._readers: dict[int, set[Equation]] = defaultdict(set)
        for equation in function.equations:
            if not self._views.is_view(equation):
                for value in equation.values:
                    self._readers[self._views.shown(value)].add(equation)
        self._returned = {self._views.shown(atom) for atom in function.outputs if isinstance(atom, int)}

    def are_among(self, value: int, equations: set[Equation]) -> bool:
        """Returns whether nothing but these equations reads a value: the function does not return it either."""
        return value not in self._returned and self._readers[value] <= equations

    def only(self, value: int) -> Equation | None:
        """Returns the one equation that reads a value; None if there are others, or the function returns it."""
        readers = self._readers[value]
        return next(iter(readers)) if len(readers) == 1 and value not in self._returned else None
