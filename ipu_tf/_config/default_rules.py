"""Default of the option `graphcore_rules`: on in processes where Graphcore's module names are importable."""

from __future__ import annotations

from ipu_tf._state.registry import ProcessValue, register_state

RULES_BY_DEFAULT = register_state(
    "default of graphcore_rules", ProcessValue(False), kept="module names stay importable"
)


def rules_hold_by_default() -> bool:
    """Returns whether Graphcore's rules hold in a program that does not set `graphcore_rules`."""
    return RULES_BY_DEFAULT.value


def use_rules_by_default() -> None:
    """Makes Graphcore's rules hold in a program that does not set `graphcore_rules`, from now on.

    `install_aliases` asks for this: programs that use Graphcore's module names were written for its rules.
    """
    RULES_BY_DEFAULT.value = True
