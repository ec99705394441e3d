"""Records the device mapping of the last pipeline that was built, for tests of programs that map stages to IPUs."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class _Last:
    mapping: tuple[Any, ...] | None = None


_last = _Last()


def record_mapping(mapping: tuple[Any, ...]) -> None:
    """Records the device mapping of a pipeline that was built."""
    _last.mapping = mapping


def last_mapping() -> tuple[Any, ...] | None:
    """Returns the device mapping of the last pipeline: for each stage an IPU, -1 for all, or a list; None before."""
    return _last.mapping
