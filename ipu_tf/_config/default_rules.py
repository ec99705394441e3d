"""Defaults of processes where Graphcore's module names are importable: the option `graphcore_rules`, and one IPU."""

from __future__ import annotations

from ipu_tf._state.registry import ProcessValue, register_state

RULES_BY_DEFAULT = register_state(
    "default of graphcore_rules", ProcessValue(False), kept="module names stay importable"
)
_ONE_IPU = register_state("one IPU by default", ProcessValue(False), kept="module names stay importable")


def rules_hold_by_default() -> bool:
    """Returns whether Graphcore's rules hold in a program that does not set `graphcore_rules`."""
    return RULES_BY_DEFAULT.value


def use_rules_by_default() -> None:
    """Makes Graphcore's rules hold in a program that does not set `graphcore_rules`, from now on.

    `install_aliases` asks for this: programs that use Graphcore's module names were written for its rules.
    """
    RULES_BY_DEFAULT.value = True


def has_one_ipu_by_default() -> bool:
    """Returns whether a process that configures nothing has `/device:IPU:0` with one IPU."""
    return _ONE_IPU.value


def use_one_ipu_by_default() -> None:
    """Makes a process that configures nothing use `/device:IPU:0` with one IPU, from now on.

    The launcher asks for this: programs that configure nothing were written for Graphcore's IPU model, which does so.
    """
    _ONE_IPU.value = True
