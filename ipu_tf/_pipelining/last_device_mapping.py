"""Records the device mapping of the last pipeline that was built, for tests of programs that map stages to IPUs."""

from __future__ import annotations

from typing import Any

from ipu_tf._state.registry import ProcessValue, register_state

_last: ProcessValue[tuple[Any, ...] | None] = register_state("device mapping of the last pipeline", ProcessValue(None))


def record_mapping(mapping: tuple[Any, ...]) -> None:
    """Records the device mapping of a pipeline that was built."""
    _last.value = mapping


def last_mapping() -> tuple[Any, ...] | None:
    """Returns the device mapping of the last pipeline: for each stage an IPU, -1 for all, or a list; None before."""
    return _last.value
