"""`next_number`: numbers for names that must be unique in the process."""

from __future__ import annotations

import itertools

from ipu_tf._state.registry import register_state

_COUNTS: dict[str, itertools.count[int]] = register_state(
    "numbers in names", {}, kept="earlier objects live on under theirs"
)


def next_number(kind: str) -> int:
    """Returns 0, 1, 2, ... for each kind of object; thread-safe.

    Example:
        >>> next_number("docs: queue"), next_number("docs: queue"), next_number("docs: loop")
        (0, 1, 0)
    """
    return next(_COUNTS.setdefault(kind, itertools.count()))
