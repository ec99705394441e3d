"""Effect of a configuration attribute in emulation: modelled, no effect, or not emulated."""

from __future__ import annotations

import dataclasses
from enum import Enum


class Effect(Enum):
    """The effect that a value other than the default has in emulation."""

    MODELLED = "modelled"
    """The emulator does what the attribute asks for."""
    NO_EFFECT = "no effect"
    """Results are the same with and without it; it is recorded and otherwise ignored."""
    WARNS = "not emulated"
    """An IPU would behave differently with it, and the emulator does not: configuring it warns."""


@dataclasses.dataclass(frozen=True)
class Treatment:
    """An effect and what happens, in one or more sentences for the user."""

    effect: Effect
    reason: str


def modelled(reason: str) -> Treatment:
    """The attribute is emulated, as `reason` says."""
    return Treatment(Effect.MODELLED, reason)


def no_effect(reason: str) -> Treatment:
    """The attribute cannot change results in emulation, for this `reason`."""
    return Treatment(Effect.NO_EFFECT, reason)


def warns(reason: str) -> Treatment:
    """The attribute changes what an IPU does; `reason` says what happens here instead."""
    return Treatment(Effect.WARNS, reason)


CHECKED = no_effect("It takes part in the checks of the configuration and does nothing else.")
COMPILER = no_effect("It steers Poplar's compiler, which is not used; results do not depend on it here.")
MEMORY = no_effect("It trades memory for time on the IPU's tiles, which are not emulated.")
COLLECTIVES = no_effect("It changes how data travels between devices; what arrives stays the same.")
