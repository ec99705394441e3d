"""Raises `EmulationError` for names of Graphcore's plugin that are not emulated."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import NoReturn

from ipu_tf.emulation import EmulationError


def refuse_others(module: str, why: str) -> Callable[[str], NoReturn]:
    """A module's `__getattr__` that raises an `EmulationError` for every name the module lacks.

    Args:
        module: the module's `__name__`.
        why: a sentence or two: why the name is not there, and what to use instead.
    """
    plain = "tensorflow.compiler.plugin." + module.removeprefix("ipu_tf.")

    def refuse(name: str) -> NoReturn:
        # Python itself asks modules for dunder names, and takes this error for "none".
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise EmulationError(f"{plain}.{name}: {why}")

    return refuse


def refused_modules(package: str, whys: Mapping[str, str]) -> Callable[[str], types.ModuleType]:
    """Makes a package's `__getattr__` that returns importable modules which refuse every name.

    Args:
        package: the package's `__name__`.
        whys: for each module, what `refuse_others` says of its names.
    """

    @functools.cache
    def module(name: str) -> types.ModuleType:
        if name not in whys:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        made = types.ModuleType(f"{package}.{name}", f"A module of Graphcore's plugin without a name: {whys[name]}")
        made.__dict__["__getattr__"] = refuse_others(made.__name__, whys[name])
        return made

    return module
