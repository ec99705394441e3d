"""`Numerics`: floating-point settings of a program: overflow, rounding, exceptions."""

from __future__ import annotations

import dataclasses
import enum


class Rounding(enum.Enum):
    """Rounding modes to float16."""

    NEAREST = "nearest"
    """To the nearest number, ties to even."""
    STOCHASTIC = "stochastic"
    """Up or down by chance, so that the mean stays what it is."""
    REPLICA_IDENTICAL = "replica identical"
    """Stochastically where all replicas compute the same, and then all the same way; elsewhere to nearest."""


@dataclasses.dataclass(frozen=True)
class Numerics:
    """Floating-point settings of one program.

    Attributes:
        nan_on_overflow: whether a float16 result that overflows is NaN; otherwise it is +-65504.
        rounding: to float16, where no `scopes.stochastic_rounding` says otherwise.
        stable_seeds: whether replicas that compute the same also round the same way.
        exceptions: the names in `ipu_tf.device.numerics.exceptions.KINDS` that a program stops for.
        norm_group: over how many consecutive replicas a batch normalisation takes the statistics of training.
    """

    nan_on_overflow: bool = False
    rounding: Rounding = Rounding.NEAREST
    stable_seeds: bool = False
    exceptions: frozenset[str] = frozenset()
    norm_group: int = 1
