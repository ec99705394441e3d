"""Runs an application without this project: `python launch.py SCRIPT ARGUMENTS`, as the launcher does with it.

The IPU's calls are taken out: the IPU's modules are those of `stand_ins`. Keras 2's and NumPy's former names
that the applications use lead to where stock packages have them now. Nothing else of TensorFlow is changed.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def install() -> None:
    """Installs names and stand-ins; the application finds no module of this repository afterwards, not even `tests`."""
    sys.path[0] = str(FOLDER.parents[3])
    package = "tests.helpers.graphcore_applications.stock"
    importlib.import_module(f"{package}.former_names").install()
    if os.environ["STOCK_STAND_INS"] == "1":
        importlib.import_module(f"{package}.stand_ins").install()
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]


def main() -> None:
    """Runs the script of the command line as `__main__`."""
    install()
    runpy.run_path(str(FOLDER.parent / "same_on_both.py"))
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as exit:
        if exit.code:
            raise
    ours = [name for name in sys.modules if name.partition(".")[0] in ("ipu_tf", "keras_ipu")]
    print("stock: to its end" if not ours else f"stock: but {ours} were imported")


if __name__ == "__main__":
    main()
