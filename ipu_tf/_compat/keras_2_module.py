"""Gives the files of a program for Keras 2 itself, `tf_keras`, that package where they import `keras`.

Up to TensorFlow 2.15 `tf.keras` and `keras` were one. With `TF_USE_LEGACY_KERAS` set, `tf.keras` is `tf_keras`.
Libraries, KerasHub for one, keep Keras 3: only files of the program itself are given the other.
"""

from __future__ import annotations

import builtins
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ipu_tf._compat.alias_names import ALIASES, alias_entry
from ipu_tf._compat.program_files import ProgramFiles
from ipu_tf._patches.installation import replace_in
from ipu_tf.device import environment

KERAS = "keras"
#: That of `tf.keras`.
KERAS_2 = "tf_keras.api._v2.keras"
#: Up to TensorFlow 2.15 a module had what is in its source, beside what is public.
KERAS_2_SOURCE = "tf_keras.src"


def give_keras_2(program: ProgramFiles) -> None:
    """Patches Python's `import` statement: files of the program that import `keras` get `tf_keras`, if they are for it.

    They are where `TF_USE_LEGACY_KERAS` is set when they import it. Nothing is imported by this call.
    """
    replace_in(builtins, "__import__", functools.partial(_import_of_program, program), key=KERAS)


def _import_of_program(program: ProgramFiles, stock: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
    @functools.wraps(stock)
    def import_module(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        of_keras = name.partition(".")[0] == KERAS and not level and environment.legacy_keras()
        if of_keras and globals is not None and program.holds_module(globals):
            return _of_keras_2(name, fromlist or ())
        return stock(name, globals, locals, fromlist, level)

    return import_module


def _of_keras_2(name: str, wanted: Sequence[str]) -> ModuleType:
    """Returns the module that stands for one of `keras`; as `__import__`, the package if nothing is wanted of it."""
    if not wanted:
        _module(name, ())
        return importlib.import_module(KERAS_2)
    return _module(name, wanted)


def _module(name: str, wanted: Sequence[str]) -> ModuleType:
    if alias_entry(name, ALIASES) is not None:
        return importlib.import_module(name)
    public = KERAS_2 + name[len(KERAS) :]
    inner = KERAS_2_SOURCE + name[len(KERAS) :]
    try:
        module = importlib.import_module(public)
    except ModuleNotFoundError as error:
        if error.name != public:
            raise
        return importlib.import_module(inner)
    if all(hasattr(module, each) or each == "*" for each in wanted):
        return module
    try:
        return importlib.import_module(inner)
    except ModuleNotFoundError:
        return module  # of which Python says what it has not
