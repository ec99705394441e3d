"""Types and ranges of options and arguments.

Those of the configuration are strict: `True` is not an int, nor 1 a float. Arguments take integers of NumPy too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from ipu_tf._arguments.counts import INT32_MAX, as_integer


def _same(value: Any) -> Any:
    return value


@dataclasses.dataclass(frozen=True)
class ValueType:
    """One accepted type.

    Attributes:
        text: the type as it is written in documentation and error messages.
        actual: the Python type, or None where several are accepted.
        accepts: tells whether a value has the type.
        least: the least number in range; None for no range.
        most: the greatest; None for no bound.
        plain: converts an accepted value to a plain Python value.
    """

    text: str
    actual: type | None
    accepts: Callable[[object], bool]
    least: float | None = None
    most: float | None = None
    plain: Callable[[Any], Any] = _same

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


def integer(least: int = 0, most: int | None = INT32_MAX) -> ValueType:
    """An integer argument: a Python or NumPy int, or an eager tensor of rank 0; no bool, no text.

    Example:
        >>> integer(1, 3).range, integer(1).accepts("1")
        ('from 1 to 3', False)
    """
    return ValueType("int", int, lambda value: as_integer(value) is not None, least, most, as_integer)


def member(kind: type[Enum]) -> ValueType:
    """A member of an enumeration."""
    names = ", ".join(kind.__members__)
    return ValueType(f"{kind.__name__} ({names})", kind, lambda value: isinstance(value, kind))


def sequence_of(text: str, accepts: Callable[[object], bool]) -> ValueType:
    """A list or tuple whose items are all accepted; `text` describes it."""
    return ValueType(text, None, lambda value: isinstance(value, (list, tuple)) and all(map(accepts, value)))


def _is_flag(value: object) -> bool:
    return isinstance(value, (bool, np.bool_)) or (type(value) is int and value in (0, 1))


def _is_int(value: object) -> bool:
    return type(value) is int


def _is_int_or_ints(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_int, value))
    return _is_int(value)


IPU_NUMBERS = ValueType("typing.Union[int, typing.List[int], typing.Tuple[int, ...]]", None, _is_int_or_ints)
"""An int, or a list or tuple of ints: what `auto_select_ipus` and `select_ipus` take."""
FLAG = ValueType("bool", bool, _is_flag, plain=bool)
"""True or False; "False" is neither."""
FLAGS = sequence_of("list of bools", _is_flag)
TEXT = ValueType.of(str)
CALLABLE = ValueType("callable", None, callable)
ANY = ValueType("any", None, lambda value: True)


def instances(text: str, kinds: type | Sequence[type]) -> ValueType:
    """An object of one of some classes."""
    wanted = tuple(kinds) if isinstance(kinds, Sequence) else kinds
    return ValueType(text, None, lambda value: isinstance(value, wanted))
