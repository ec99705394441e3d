"""Converts an infeed element to arguments of a loop body."""

from __future__ import annotations

from typing import Any


def body_arguments(element: Any) -> tuple[list[Any], dict[str, Any]]:
    """Returns positional and named arguments for an element.

    A tuple gives its items, a single tensor itself, and a dictionary whose keys are all strings its items by name.

    Example:
        >>> body_arguments({"a": 1})
        ([], {'a': 1})
        >>> body_arguments((1, 2))
        ([1, 2], {})
    """
    items = list(element) if isinstance(element, (list, tuple)) else [element]
    if len(items) == 1 and isinstance(items[0], dict) and all(isinstance(key, str) for key in items[0]):
        return [], dict(items[0])
    return items, {}
