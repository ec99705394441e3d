"""`ParameterNotes`: names of a program's parameters, and which are weights or optimizer state, for reports."""

from __future__ import annotations

import dataclasses


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
