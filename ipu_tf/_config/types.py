"""Strict type checks of configuration attributes: `True` is not an int, nor 1 a float."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class ValueType:
    """One accepted type.

    Attributes:
        text: the type as it is written in documentation and error messages.
        actual: the Python type, or None where several are accepted.
        accepts: tells whether a value has the type.
        least: the least number in range; None for no range.
        most: the greatest; None for no bound.
    """

    text: str
    actual: type | None
    accepts: Callable[[object], bool]
    least: float | None = None
    most: float | None = None

    @property
    def range(self) -> str:
        """The range in words; empty where any value of the type will do."""
        if self.least is None:
            return ""
        return f"at least {self.least}" if self.most is None else f"from {self.least} to {self.most}"

    def holds(self, value: object) -> bool:
        """Returns whether a value of the type is in range."""
        if self.least is None or not isinstance(value, (int, float)):
            return True
        return self.least <= value and (self.most is None or value <= self.most)

    @staticmethod
    def of(kind: type) -> ValueType:
        """Exactly `kind`: subclasses are not accepted, so that a bool never passes for an int."""
        return ValueType(kind.__name__, kind, lambda value: type(value) is kind)


def _is_int(value: object) -> bool:
    return type(value) is int


def _is_int_or_ints(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_int, value))
    return _is_int(value)


IPU_NUMBERS = ValueType("typing.Union[int, typing.List[int], typing.Tuple[int, ...]]", None, _is_int_or_ints)
"""An int, or a list or tuple of ints: what `auto_select_ipus` and `select_ipus` take."""
