"""`ParameterNotes`: names of a program's parameters, and which are weights or optimizer state, for reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class ParameterNotes:
    """What reports say of a program's parameters. Nothing that runs depends on it.

    Attributes:
        names: a name for each parameter; empty where they have none.
        weights: which parameters are trained variables.
        optimizer_state: which are variables of an optimizer.
    """

    names: tuple[str, ...] = ()
    weights: frozenset[int] = frozenset()
    optimizer_state: frozenset[int] = frozenset()

    def of(self, parameters: Sequence[int]) -> ParameterNotes:
        """Returns the notes on some of the parameters, in another order."""
        names = tuple(self.names[number] for number in parameters) if self.names else ()
        weights, state = (
            frozenset(place for place, number in enumerate(parameters) if number in kind)
            for kind in (self.weights, self.optimizer_state)
        )
        return ParameterNotes(names, weights, state)
