"""Tables of arguments with type, range, default and effect, for queues, pipelines and options of Keras models.

A table checks what is given and writes its part of SUPPORTED.md and docs/options.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ipu_tf._arguments.known_names import check_known
from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._config.treatment import Effect, Treatment
from ipu_tf._config.types import ValueType


class Required:
    """Stands for the default of an argument that has none."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = Required()


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument.

    Attributes:
        name: of the parameter.
        value_type: what it accepts, and its range.
        default: its value where it is not given. None stands for it where it is None, or the type is bool.
        meaning: what it does.
        treatment: what becomes of it in emulation.
        check: checks a value, and raises an error of Graphcore's text; by default the type and range are checked.
        refused: whether another value than the default is an error.
    """

    name: str
    value_type: ValueType
    default: Any
    meaning: str
    treatment: Treatment
    check: Callable[[Any], Any] | None = None
    refused: bool = False

    @property
    def effect(self) -> str:
        """What another value than the default does, in a word of the glossary."""
        return "refused" if self.refused else self.treatment.effect.value

    def checked(self, value: Any) -> Any:
        """Checks a value, and returns it as a plain Python value.

        Raises:
            TypeError: if it has another type.
            ValueError: if it is out of range.
        """
        if value is None and (self.default is None or self.value_type.actual is bool):
            return self.default
        if self.check is not None:
            return self.check(value)
        wanted, kind = self.value_type, type(value).__name__
        if not wanted.accepts(value):
            also = " or None" if self.default is None else ""
            raise TypeError(
                f"`{self.name}` must be of type {wanted.text}{also}. Received: {value!r:.200} (of type {kind})."
            )
        plain = wanted.plain(value)
        if not wanted.holds(plain):
            raise ValueError(f"`{self.name}` must be {wanted.range}. Received: {plain}.")
        return plain


@dataclasses.dataclass(frozen=True)
class ArgumentTable:
    """The arguments of one function, method or class.

    Attributes:
        function: its name.
        arguments: in the order in which they are documented.
    """

    function: str
    arguments: tuple[Argument, ...]

    def __getitem__(self, name: str) -> Argument:
        return next(each for each in self.arguments if each.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments."""
        return tuple(each.name for each in self.arguments)

    def record(self, given: Mapping[str, Any]) -> None:
        """Records those of some arguments that change nothing in emulation, where they are not the defaults."""
        for name, value in given.items():
            treatment = self[name].treatment
            if treatment.effect is Effect.NO_EFFECT and value != self[name].default:
                reason = treatment.reason.rstrip(".")
                record_ignored(f"{self.function}.{name}", value, reason[0].lower() + reason[1:])

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Checks arguments by name, and returns them as plain Python values.

        Raises:
            TypeError: for an unknown name, with the known one that is most like it, or a value of another type.
            ValueError: for a value out of range.
        """
        check_known(self.function, given, self.names)
        return {name: self[name].checked(value) for name, value in given.items()}
