"""Assigns to attributes by dotted names, as `operator.attrgetter` reads them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any


def assign(owner: Any, name: str, value: object) -> None:
    """Assigns to an attribute, `"floating_point_behaviour.inv"`."""
    parents, _, last = name.rpartition(".")
    setattr(attrgetter(parents)(owner) if parents else owner, last, value)
