"""Installs Graphcore's module names in Python child processes of a launched program, at the first import of one.

    launcher ─► IPU_TF_ALIASES=1, PYTHONPATH=this folder ─► python3 script.py ─► this module ─► `import tensorflow`
                                                                                               ─► names are prepared

The folder is on `PYTHONPATH` only in processes that a launched program starts. Nothing of this project is imported
before it is needed; another `sitecustomize` on the path is run as well.
"""

from __future__ import annotations

import importlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # without importing `typing`, which a small program can do without
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

#: The first parts of the names that Graphcore's modules have.
ROOTS = frozenset(
    (
        "gcipuinfo",
        "horovod",
        "ipu_tensorflow_addons",
        "keras",
        "libpvti",
        "mpi4py",
        "popdist",
        "popef",
        "pva",
        "tensorflow",
        "tensorflow_addons",
        "tensorflow_estimator",
        "tf_keras",
    )
)
_PACKAGES = ("ipu_tf", "keras_ipu")
_HERE = os.path.dirname(os.path.abspath(__file__))
_PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))


class FirstImport:
    """Finder of `sys.meta_path` that prepares Graphcore's names at the first import of one, and then removes itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Prepares the names at the first import of one, and finds the module with the other finders; else None."""
        if fullname in _PACKAGES:
            make_importable()
        if fullname.partition(".")[0] not in ROOTS:
            return None
        sys.meta_path.remove(self)
        prepare()
        found = (finder.find_spec(fullname, path, target) for finder in list(sys.meta_path))
        return next((spec for spec in found if spec is not None), None)


def prepare() -> None:
    """Prepares this process as the launcher prepares one for a script, unless `IPU_TF_ALIASES` disables it."""
    make_importable()
    importlib.import_module("ipu_tf._compat.program_names").prepare_child()


def make_importable() -> None:
    """Appends this project to `sys.path` if it cannot be imported: it may run from a checkout."""
    if not any(os.path.isdir(os.path.join(entry or ".", "ipu_tf")) for entry in sys.path):
        sys.path.append(_PROJECT)


def next_sitecustomize() -> None:
    """Runs the `sitecustomize` that Python would have found without this folder."""
    this = sys.modules.pop(__name__)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault(__name__, this)


if __name__ == "sitecustomize":
    # A program may start any Python there is, also one too old for this project.
    if sys.version_info >= (3, 11):  # noqa: UP036
        sys.meta_path.insert(0, FirstImport())
    next_sitecustomize()
