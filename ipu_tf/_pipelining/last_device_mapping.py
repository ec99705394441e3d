"""Records the device mapping of the last pipeline that was built, for tests of programs that map stages to IPUs."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class _Last:
    mapping: tuple[Any, ...] | None = None


_last = _Last()


def record_mapping(mapping: tuple[Any, ...]) -> None:
    """A pipeline was built with this device mapping."""
    _last.mapping = mapping


def last_mapping() -> tuple[Any, ...] | None:
    """For each stage of the last pipeline the IPU it is on, -1 for all, or a list; None before the first."""
    return _last.mapping
