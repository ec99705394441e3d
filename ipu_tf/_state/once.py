"""`first_time`: whether something is said or done for the first time in this process."""

from __future__ import annotations

from collections.abc import Hashable

from ipu_tf._state.registry import register_state

_SAID: dict[tuple[Hashable, ...], object] = register_state("messages given once", {})


def first_time(*what: Hashable) -> bool:
    """Returns whether this is the first call with these arguments, for messages that are given once.

    Args:
        *what: the message, and what it is about.

    Example:
        >>> first_time("docs: a warning", 1), first_time("docs: a warning", 2), first_time("docs: a warning", 1)
        (True, True, False)
    """
    token = object()
    return _SAID.setdefault(what, token) is token  # one operation, so that two threads cannot both be first


def was_given(*what: Hashable) -> bool:
    """Returns whether `first_time` was called with these arguments, for messages that may fail to be given."""
    return what in _SAID
