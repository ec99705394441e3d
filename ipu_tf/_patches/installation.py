"""Installs and uninstalls patches of other packages. Each must be listed in `ipu_tf._patches.table`."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any

from ipu_tf._patches.patch import Patch
from ipu_tf._patches.table import PATCHES
from ipu_tf._state.registry import register_state


@dataclasses.dataclass(frozen=True)
class _Installed:
    """An installed patch, with the function that takes it off again."""

    patch: Patch
    undo: Callable[[], None]


_MISSING = object()
_LOCK = threading.RLock()
#: By (target, key), in the order of installation.
_INSTALLED: dict[tuple[str, Hashable], _Installed] = register_state(
    "patches", {}, kept="`ipu_tf.patches.uninstall` takes them off"
)


def entry(target: str, replacement: str) -> Patch:
    """Returns the table's entry for a target that a module of ours replaces.

    Raises:
        LookupError: if there is none.
    """
    for patch in PATCHES:
        if patch.covers(target, replacement):
            return patch
    raise LookupError(
        f"{target} would be changed by {replacement} and is not in `ipu_tf._patches.table.PATCHES`. "
        "Add it there, with why."
    )


def replace_in(
    owner: Any,
    name: str,
    make: Callable[[Any], Any],
    *,
    key: Hashable = "",
    missing: Any = _MISSING,
    by: Callable[..., Any] | str | None = None,
) -> None:
    """Replaces an attribute of an object of another package by `make(stock)`, unless that was done before.

    Args:
        owner: a module or a class.
        name: of its attribute.
        make: from the attribute's present value, as `getattr` gives it, to the replacement.
        key: tells several changes of one attribute from each other.
        missing: the value that `make` is given where there is no such attribute; without it, that is an error.
        by: the function that runs in the attribute's place, or its module, where it lies in another one than `make`.

    Raises:
        LookupError: if the target is not in the table.
        AttributeError: if there is no such attribute and no value for `missing`.
    """
    target = target_of(owner, name)
    with _LOCK:
        if (target, key) in _INSTALLED:
            return
        patch = entry(target, _module_of(make if by is None else by))
        before = vars(owner).get(name, _MISSING)
        # TensorFlow's wrappers of modules remember each attribute that they were asked for.
        stock = getattr(owner, name) if missing is _MISSING else missing if before is _MISSING else before
        ours = make(stock)
        setattr(owner, name, ours)
        undo = functools.partial(_restore, owner, name, before, vars(owner)[name], target)
        _INSTALLED[target, key] = _Installed(patch, undo)


def record(target: str, undo: Callable[[], None], key: Hashable = "") -> None:
    """Records a change that is no attribute, and may be made more than once, with the function that undoes it.

    The module that defines `undo` is the one that made the change.

    Raises:
        LookupError: if the target is not in the table.
    """
    with _LOCK:
        _INSTALLED.setdefault((target, key), _Installed(entry(target, _module_of(undo)), undo))


def change(target: str, make: Callable[[], object], undo: Callable[[], None], key: Hashable = "") -> None:
    """Makes a change that is no attribute, such as a registration, unless that was done before, in any thread.

    Args:
        target: the table's name of it.
        make: makes the change.
        undo: takes it off. The module that defines it is the one that makes the change.
        key: tells several changes of one target from each other.

    Raises:
        LookupError: if the target is not in the table.
    """
    with _LOCK:
        if (target, key) not in _INSTALLED:
            patch = entry(target, _module_of(undo))
            make()
            _INSTALLED[target, key] = _Installed(patch, undo)


def is_installed(target: str, key: Hashable = "") -> bool:
    """Returns whether a patch is installed."""
    return (target, key) in _INSTALLED


def installed() -> tuple[tuple[str, Patch], ...]:
    """The targets that are changed now, each with its entry in the table, in the order of installation."""
    with _LOCK:
        return tuple(dict.fromkeys((target, each.patch) for (target, _), each in _INSTALLED.items()))


def uninstall(target: str) -> None:
    """Removes the patches of one attribute, the last one first.

    Raises:
        RuntimeError: if other code has replaced the attribute since.
    """
    with _LOCK:
        for name in [name for name in reversed(tuple(_INSTALLED)) if name[0] == target]:
            _INSTALLED[name].undo()
            del _INSTALLED[name]


def uninstall_all() -> None:
    """Removes every patch, the last one first.

    Raises:
        RuntimeError: if other code has replaced an attribute since. What came after it is off, the rest is in force.
    """
    with _LOCK:
        for name in reversed(tuple(_INSTALLED)):
            _INSTALLED[name].undo()
            del _INSTALLED[name]


def target_of(owner: Any, name: str) -> str:
    """Returns the table's name of an attribute of a module or class.

    Example:
        >>> import json
        >>> target_of(json.JSONEncoder, "encode"), target_of(json, "dumps")
        ('json.encoder:JSONEncoder.encode', 'json:dumps')
    """
    if isinstance(owner, type):
        return f"{owner.__module__}:{owner.__qualname__}.{name}"
    return f"{owner.__name__}:{name}"


def _module_of(function: Callable[..., Any] | str) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return function if isinstance(function, str) else function.__module__


def _restore(owner: Any, name: str, before: Any, ours: Any, target: str) -> None:
    if vars(owner).get(name, _MISSING) is not ours:
        raise RuntimeError(
            f"{target} cannot be put back: something else has replaced it since `ipu_tf` did. Take that off first."
        )
    if before is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
