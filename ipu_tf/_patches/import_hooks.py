"""Callbacks that run when a module has been imported, and fallbacks for names a module lacks."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

from ipu_tf._patches.installation import record, replace_in
from ipu_tf._state.registry import register_state

Callback = Callable[[ModuleType], None]


class _CallbackLoader(importlib.abc.Loader):
    """Wraps a module's loader: runs callbacks after the module was executed."""

    def __init__(self, inner: importlib.abc.Loader, callbacks: Sequence[Callback]) -> None:
        self._inner = inner
        self._callbacks = callbacks

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module must see its true loader: resources and source lookups ask it for more than loading.
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        for callback in self._callbacks:
            callback(module)


class _CallbackFinder(importlib.abc.MetaPathFinder):
    """Import finder that wraps the loaders of modules with registered callbacks in `_CallbackLoader`."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callback]] = {}
        self._asking = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        # A finder asked below may itself ask every finder in sys.meta_path, this one included.
        if fullname not in self.callbacks or getattr(self._asking, "name", None) == fullname:
            return None
        self._asking.name = fullname
        try:
            spec = find_spec_elsewhere(self, fullname, path)
        finally:
            self._asking.name = None
        if spec is not None and spec.loader is not None:
            spec.loader = _CallbackLoader(spec.loader, self.callbacks[fullname])
        return spec


_FINDER = register_state("callbacks of imports", _CallbackFinder(), kept="patches stay")


def find_spec_elsewhere(
    asker: importlib.abc.MetaPathFinder, name: str, path: Sequence[str] | None
) -> importlib.machinery.ModuleSpec | None:
    """Finds module `name` with the finders of `sys.meta_path` other than `asker`; None if there is none."""
    for finder in sys.meta_path:
        if finder is not asker:
            spec = finder.find_spec(name, path)
            if spec is not None:
                return spec
    return None


def install_finder(finder: importlib.abc.MetaPathFinder) -> None:
    """Puts a finder before all others, until the project's patches are uninstalled."""
    sys.meta_path.insert(0, finder)
    record("sys:meta_path", lambda: sys.meta_path.remove(finder), key=finder)


def after_import(name: str, callback: Callback) -> None:
    """Calls `callback(module)` once module `name` has been executed; at once when it already has. Idempotent.

    Importing this module or calling this function imports nothing.

    Example:
        >>> import json
        >>> after_import("json", lambda module: print(module.__name__))
        json
    """
    if _FINDER not in sys.meta_path:
        install_finder(_FINDER)
    callbacks = _FINDER.callbacks.setdefault(name, [])
    if callback not in callbacks:
        callbacks.append(callback)
    module = sys.modules.get(name)
    if module is not None:
        callback(module)


def add_fallback(module: ModuleType, knows: Callable[[str], bool], load: Callable[[str], object]) -> None:
    """Adds a module `__getattr__`: `load(name)` for missing attributes of which `knows(name)` is true.

    The module's own attributes and its own `__getattr__` come first.

    Example:
        >>> from types import ModuleType
        >>> module = ModuleType("ipu_tf.small")
        >>> add_fallback(module, "one".__eq__, lambda name: 1)
        >>> module.one, hasattr(module, "two")
        (1, False)
    """
    own: Callable[[str], object] | None = vars(module).get("__getattr__")

    def lookup(name: str) -> object:
        if own is not None:
            try:
                return own(name)
            except AttributeError:
                if not knows(name):
                    raise
        elif not knows(name):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return load(name)

    # A module's own `__getattr__` serves `hasattr` and `from module import name` alike (PEP 562).
    replace_in(module, "__getattr__", lambda _: lookup, key=lookup, missing=None, by=load)
