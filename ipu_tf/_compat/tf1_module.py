"""Gives the files of a TensorFlow 1 program TensorFlow 1's module where they import `tensorflow`.

Libraries, Keras for one, keep today's module: only files of the program itself are given the other.
"""

from __future__ import annotations

import builtins
import functools
import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ipu_tf._compat.program_files import ProgramFiles
from ipu_tf._patches.installation import replace_in

#: The TensorFlow 1 that Graphcore's SDK had.
VERSION = "1.15.5"
#: Names that lead to packages which have one side alone.
_TODAYS = frozenset({"keras", "lite", "python"})


class TensorFlow1(ModuleType):
    """A module of TensorFlow 1: the names of a module below `tensorflow.compat.v1`, and today's names that it lacks.

    Args:
        v1: the module that TensorFlow 1 had.
        today: the module that is there today.
    """

    def __init__(self, v1: ModuleType, today: ModuleType) -> None:
        super().__init__(today.__name__, today.__doc__)
        self._v1 = v1
        self._today = today

    def __getattr__(self, name: str) -> Any:
        v1, today = vars(self)["_v1"], vars(self)["_today"]
        if name.startswith("__") or name in _TODAYS or not hasattr(v1, name):
            return getattr(today, name)
        value = getattr(v1, name)
        other = getattr(today, name, None)
        if isinstance(value, ModuleType) and isinstance(other, ModuleType):
            value = vars(self)[name] = TensorFlow1(value, other)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._v1), *dir(self._today)})


def give_tensorflow_1(program: ProgramFiles) -> None:
    """Patches Python's `import` statement: files of the program that import `tensorflow` get `TensorFlow1`."""
    replace_in(builtins, "__import__", functools.partial(_import_of_program, program))


def _import_of_program(program: ProgramFiles, stock: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
    @functools.wraps(stock)
    def import_module(name: str, globals: Mapping[str, Any] | None = None, *args: Any, **kwargs: Any) -> ModuleType:
        module = stock(name, globals, *args, **kwargs)
        if module.__name__ in _GIVEN and globals is not None and program.holds_module(globals):
            return _GIVEN[module.__name__]()
        return module

    return import_module


@functools.cache
def _tensorflow_1() -> ModuleType:
    today = importlib.import_module("tensorflow")
    module = TensorFlow1(today.compat.v1, today)
    vars(module).update(__version__=VERSION, VERSION=VERSION, compat=TensorFlow1(today.compat, today.compat))
    module.compat.v1 = module
    return module


#: What is given in place of a module, by its name.
_GIVEN: Mapping[str, Callable[[], ModuleType]] = {
    "tensorflow": _tensorflow_1,
    "tensorflow.compat": lambda: _tensorflow_1().compat,
    "tensorflow._api.v2.compat": lambda: _tensorflow_1().compat,
    "tensorflow.compat.v1": _tensorflow_1,
    "tensorflow._api.v2.compat.v1": _tensorflow_1,
}
