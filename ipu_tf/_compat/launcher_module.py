"""Runs a module as `python -m MODULE` would."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType


class ModuleMissing(Exception):
    """Error for a module that does not exist; the message is Python's."""


class ModuleProgram:
    """A compiled module, or the `__main__` of a package. Packages around it are imported.

    Args:
        name: the module's name.
        args: its arguments.

    Raises:
        ModuleMissing: there is no such module, or it has no code to run.
        SyntaxError: it is not Python.
        BaseException: what a package around it raises when it is imported.

    Attributes:
        file: the module's file.
    """

    def __init__(self, name: str, args: Sequence[str]) -> None:
        sys.argv = ["-m", *args]  # as Python has it while the packages around the module are imported
        self._args = args
        self._spec, self._code = _located(name)
        self.file = Path(self._spec.origin or name)

    def run(self) -> None:
        """Runs it as module `__main__`, which it stays, with `sys.argv` set for it.

        Raises:
            BaseException: whatever the module raises, SystemExit included.
        """
        sys.argv = [self._spec.origin or "-m", *self._args]
        module = importlib.util.module_from_spec(self._spec)
        module.__name__ = "__main__"
        module.__annotations__ = {}
        sys.modules["__main__"] = module
        exec(self._code, module.__dict__)


def module_file(name: str) -> Path | None:
    """Returns the file that `python -m name` would run, without importing packages around it; None if it is not known.

    What those import may depend on what the launcher does for the program.
    """
    path: Sequence[str] | None = None
    spec = None
    if not all(name.split(".")):
        return None
    for part in itertools.accumulate(name.split("."), lambda first, second: f"{first}.{second}"):
        spec = PathFinder.find_spec(part, path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    if spec is not None and path is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", path)
    return Path(spec.origin) if spec is not None and spec.origin else None


def _located(name: str) -> tuple[ModuleSpec, CodeType]:
    if name.startswith("."):
        raise ModuleMissing("Relative module names not supported")
    spec = _spec(name)
    if spec is None:
        raise ModuleMissing(f"No module named {name}")
    if spec.submodule_search_locations is not None:
        if name == "__main__" or name.endswith(".__main__"):
            raise ModuleMissing("Cannot use package as __main__ module")
        try:
            return _located(f"{name}.__main__")
        except ModuleMissing as error:
            raise ModuleMissing(f"{error}; {name!r} is a package and cannot be directly executed") from None
    code = getattr(spec.loader, "get_code", lambda _: None)(spec.name)
    if code is None:
        raise ModuleMissing(f"No code object available for {name}")
    return spec, code


def _spec(name: str) -> ModuleSpec | None:
    parent = name.rpartition(".")[0]
    try:
        if parent:
            importlib.import_module(parent)
    except ImportError as error:
        # That a package is not there is said below; what else goes wrong in one is the program's own error.
        if error.name is None or not f"{parent}.".startswith(f"{error.name}."):
            raise
    try:
        return importlib.util.find_spec(name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        hint = f". Try using '{name[:-3]}' instead of '{name}' as the module name." if name.endswith(".py") else ""
        said = f"{type(error).__name__}: {error}"
        raise ModuleMissing(f"Error while finding module specification for {name!r} ({said}){hint}") from error
