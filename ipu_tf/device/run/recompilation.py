"""Says why a function is traced and compiled again: which of its arguments changed, from what to what."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Signature = Mapping[str, str]
"""What a compiled program depends on, by name: `x` -> `float32[32, 8]`, `replicas` -> `2`."""
_MOST_SAID = 4
_LETTERS = 60
"""Shown of a name or a value: arguments may be long texts."""
_ABSENT = "absent"


def what_changed(now: Signature, before: Iterable[Signature]) -> str:
    """Returns how a signature differs from the one before it that is most like it; "" if there is none.

    Args:
        now: what is compiled.
        before: what was compiled of the same function, in order; of several that are as like it the last counts.

    Example:
        >>> what_changed({"x": "float32[5]", "y": "int32[]"}, [{"x": "float32[8]", "y": "int32[]"}])
        'x was float32[8] and is float32[5]'
    """
    found: list[str] | None = None
    for each in before:
        differences = list(_differences(each, now))
        found = differences if found is None or len(differences) <= len(found) else found
    if not found:
        return ""
    more = len(found) - _MOST_SAID
    return ", ".join([*found[:_MOST_SAID], *([f"and {more} more"] if more > 0 else [])])


def array_text(shape: Iterable[int], dtype: Any) -> str:
    """Returns an array's type as signatures have it, such as `float32[32, 8]`."""
    return f"{getattr(dtype, 'name', dtype)}{list(shape)}"


def settings_of(settings: Any) -> dict[str, str]:
    """Returns the fields of a dataclass, and of those in it, as a signature has them."""
    found: dict[str, str] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        found |= settings_of(value) if dataclasses.is_dataclass(value) else {field.name: str(value)}
    return found


def named_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a function's arguments by the names that the function has for them.

    Example:
        >>> list(named_arguments(lambda batch, rate: 0, ({"x": [1, 2]}, 0.5), {}))
        [("batch['x'][0]", 1), ("batch['x'][1]", 2), ('rate', 0.5)]
    """
    try:
        bound = inspect.signature(getattr(function, "python_function", function)).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # it says itself what it does not take; some have no signature
        bound = {**{f"argument {place}": value for place, value in enumerate(args)}, **kwargs}
    for name, value in bound.items():
        yield from _leaves(name, value)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(f"{name}[{key!r}]", part)
    elif isinstance(value, (list, tuple)):
        for place, part in enumerate(value):
            yield from _leaves(f"{name}[{place}]", part)
    else:
        yield name, value


def _differences(before: Signature, now: Signature) -> Iterator[str]:
    for name in dict.fromkeys((*now, *before)):
        was, becomes = before.get(name, _ABSENT), now.get(name, _ABSENT)
        if was != becomes:
            start = _first_shown(was, becomes)
            yield f"{_cut(name)} was {_cut(was, start)} and is {_cut(becomes, start)}"


def _first_shown(was: str, becomes: str) -> int:
    """Returns from which letter on two long texts are shown, for the first that differs to be among those."""
    same = len(os.path.commonprefix([was, becomes]))
    return same - _LETTERS // 2 if same >= _LETTERS else 0


def _cut(text: str, start: int = 0) -> str:
    shown = text[start : start + _LETTERS]
    before, after = "..." if start else "", "..." if start + _LETTERS < len(text) else ""
    return f"{before}{shown}{after}"
