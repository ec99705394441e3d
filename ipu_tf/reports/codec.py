"""Frozen dataclasses as plain JSON data and back, with each value checked against its type."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import math
import types
import typing
from typing import Any

_NUMBERS = (int, float)
_ENDS = (2, 3)
"""How many numbers a range may have: start and stop, with a step unless that is 1."""
_PAIR = 2


def encode(value: Any) -> Any:
    """Returns a value as JSON has it: dataclasses and tuples as lists, members of enums by their names.

    A mapping whose keys are no strings in JSON, such as numbers, is a list of pairs.
    """
    if dataclasses.is_dataclass(value):
        return [encode(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, range):
        return [value.start, value.stop] if value.step == 1 else [value.start, value.stop, value.step]
    if isinstance(value, (tuple, list)):
        return [encode(each) for each in value]
    if isinstance(value, collections.abc.Mapping):
        pairs = [[encode(key), encode(each)] for key, each in value.items()]
        return dict(pairs) if all(isinstance(key, str) for key, _ in pairs) else pairs
    return value


def decode(wanted: Any, data: Any) -> Any:
    """Returns the value of a type that `encode` gave.

    Args:
        wanted: a dataclass, an enum, `int`, `float`, `str`, `bool`, `range`, a tuple, mapping or union of these.
        data: from JSON.

    Raises:
        ValueError: if the data is not of this type.
    """
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        chosen = [each for each in arguments if each is not types.NoneType]
        return None if data is None else decode(chosen[0], data)
    if origin is tuple:
        return tuple(decode(arguments[0], each) for each in _checked(data, list, wanted))
    if origin is collections.abc.Mapping:
        entries = data.items() if isinstance(data, dict) else map(_pair, _checked(data, list, wanted))
        return {decode(arguments[0], key): decode(arguments[1], each) for key, each in entries}
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return _member(wanted, data)
    if dataclasses.is_dataclass(wanted):
        return _dataclass(wanted, data)
    if wanted is range:
        ends = decode(tuple[int, ...], data)
        return range(*ends) if len(ends) in _ENDS else _refuse(data, wanted)
    if wanted is float:
        number = float(_checked(data, _NUMBERS, wanted))
        return number if math.isfinite(number) else _refuse(data, wanted)
    return _checked(data, wanted, wanted)


def _dataclass(wanted: Any, data: Any) -> Any:
    hints = _hints(wanted)
    if not isinstance(data, list) or len(data) != len(hints):
        _refuse(data, wanted)
    return wanted(*(decode(hint, each) for hint, each in zip(hints, data, strict=True)))


@functools.cache
def _hints(wanted: Any) -> tuple[Any, ...]:
    hints = typing.get_type_hints(wanted)
    return tuple(hints[field.name] for field in dataclasses.fields(wanted))


def _pair(data: Any) -> list[Any]:
    """Returns a key and its value."""
    found: list[Any] = _checked(data, list, tuple)
    return found if len(found) == _PAIR else _refuse(data, tuple)


def _member(wanted: type[enum.Enum], data: Any) -> enum.Enum:
    if not isinstance(data, str) or data not in wanted.__members__:
        _refuse(data, wanted)
    return wanted[data]


def _checked(data: Any, kind: Any, wanted: Any) -> Any:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        _refuse(data, wanted)
    return data


def _refuse(data: Any, wanted: Any) -> Any:
    raise ValueError(f"Expected {getattr(wanted, '__name__', wanted)}. Received: {str(data)[:80]!r}.")
