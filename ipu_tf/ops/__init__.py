"""Graphcore's ops: modules of this package, imported when they are first used."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from ipu_tf._compat.alias_names import GRADIENT_MODULES


def __getattr__(name: str) -> ModuleType:
    home = GRADIENT_MODULES.get(f"tensorflow.python.ipu.ops.{name}", f"{__name__}.{name}")
    if not name.startswith("_") and importlib.util.find_spec(home) is not None:
        return importlib.import_module(home)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
