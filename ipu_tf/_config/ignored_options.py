"""Lists configuration attributes that were set without effect, and warns about those not emulated."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ipu_tf._config.base import settings_of
from ipu_tf._config.messages import warn_user
from ipu_tf._config.option import Setting
from ipu_tf._config.treatment import Effect, Treatment
from ipu_tf._state.once import first_time, was_given

if TYPE_CHECKING:
    from ipu_tf._config.schema import ConfigRoot


class EmulationWarning(UserWarning):
    """An IPU would behave differently from the emulator, in the way that the message says."""


@dataclasses.dataclass(frozen=True)
class IgnoredOption:
    """An attribute that was set and has no effect in emulation.

    Attributes:
        name: its full name.
        value: the value that was configured.
        reason: why nothing comes of it, or what happens instead.
    """

    name: str
    value: Any
    reason: str


def ignored_in(config: ConfigRoot) -> tuple[IgnoredOption, ...]:
    """Every attribute of `config` that is neither at its default nor modelled, in declaration order."""
    return tuple(
        IgnoredOption(item.metadata.name, item.copy_value(), treatment.reason)
        for item, treatment in _treatments(config)
        if treatment.effect is not Effect.MODELLED
    )


def warn_not_emulated(config: ConfigRoot) -> None:
    """Issues an `EmulationWarning`, once, for every attribute and value that would change what an IPU does."""
    for item, treatment in _treatments(config):
        key = (item.metadata.name, str(item.value))
        if treatment.effect is Effect.WARNS and not was_given("not emulated", *key):
            warn_user(f"{key[0]} = {key[1]} is not emulated. {treatment.reason}", EmulationWarning)
            first_time("not emulated", *key)


def _treatments(config: ConfigRoot) -> Iterator[tuple[Setting, Treatment]]:
    for item in settings_of(config):
        treatment = item.option.treatment_of(item.value)
        if treatment is not None:
            yield item, treatment
