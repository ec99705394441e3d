"""Tells the files of a program from those of the libraries that it imports."""

from __future__ import annotations

import functools
import site
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: Packages of this project: in a checkout no folder of installed packages holds them.
_PACKAGES = ("ipu_tf", "keras_ipu", "pytest_ipu")
_PROJECT = Path(__file__).resolve().parents[2]


class ProgramFiles:
    """Files of a program: the script, what lies below its folder, and what it adds to `sys.path` itself.

    Libraries are Python's, this project, and what `pip` installs, below the script's folder too; elsewhere also
    folders with `.egg-info`, and folders of `PYTHONPATH`, if they are in another checkout of git than the script.

    Args:
        script: the script's file.
        root: another folder than its own that it imports modules from.
        python_path: the folders of `PYTHONPATH`.
    """

    def __init__(self, script: Path, root: Path | None = None, python_path: Iterable[str] = ()) -> None:
        self._script = script.resolve()
        around = self._script.parents
        self._own = {folder.resolve() for folder in (around[0], root) if folder}
        self._around = {*around, *self._own}
        self._checkout = next((folder for folder in around if (folder / ".git").exists()), None)
        self._python_path = {Path(entry).resolve() for entry in python_path}
        self._installed = _installed_folders()
        self.holds = functools.cache(self._holds)
        """Returns whether a file, by its path, is one of the program."""

    def holds_module(self, names: Mapping[str, Any]) -> bool:
        """Returns whether a module, by its global names, is one of the program."""
        file = names.get("__file__")
        return names.get("__name__") == "__main__" if file is None else self.holds(file)

    def _holds(self, file: str) -> bool:
        path = Path(file).resolve()
        if path == self._script:
            return True
        for folder in path.parents:  # from the inside out: either may lie in the other
            if folder in self._installed or any(folder.glob("*.dist-info")):
                return False
            if folder in self._own:
                return True
        return self._checkout in path.parents or not any(self._is_of_others(folder) for folder in path.parents)

    def _is_of_others(self, folder: Path) -> bool:
        return folder not in self._around and (folder in self._python_path or any(folder.glob("*.egg-info")))


def _installed_folders() -> set[Path]:
    paths = sysconfig.get_paths()
    python = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    sites = [*site.getsitepackages(), site.getusersitepackages()]
    return {Path(each).resolve() for each in (*python, *sites)} | {_PROJECT / name for name in _PACKAGES}
