"""Attributes that an object has for a time, whatever its class or its user has set."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def own_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Context in which an object has an attribute of its own; what the object itself had comes back after it.

    Bypasses Keras's `__setattr__`, which would track the value.

    Args:
        owner: the object.
        name: of the attribute.
        value: what it is meanwhile.

    >>> import types
    >>> owner = types.SimpleNamespace(name="given")
    >>> with own_attribute(owner, "name", "replaced"), own_attribute(owner, "other", 1):
    ...     owner
    namespace(name='replaced', other=1)
    >>> owner
    namespace(name='given')
    """
    own, before = name in vars(owner), vars(owner).get(name)
    object.__setattr__(owner, name, value)
    try:
        yield
    finally:
        if own:
            object.__setattr__(owner, name, before)
        else:
            object.__delattr__(owner, name)
