"""Checks keyword names against the known ones, and suggests the closest match."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Returns "Did you mean ...?" with the closest known name, for an error's text; empty if none is close.

    >>> did_you_mean("prefetch_dept", ["prefetch_depth", "device_ordinal"])
    " Did you mean 'prefetch_depth'?"
    """
    lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(str(name).lower(), lower, n=1)
    return f" Did you mean {lower[near[0]]!r}?" if near else ""


def check_known(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """Checks the names of keyword arguments.

    Args:
        function: what they were given to, for the error.
        given: their names.
        known: the names that it takes.

    Raises:
        TypeError: for the first that is unknown, with the known one that is most like it.
    """
    for name in given:
        if name not in known:
            hint = f"{did_you_mean(name, known)} It takes: {', '.join(sorted(known))}."
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}.{hint}")
