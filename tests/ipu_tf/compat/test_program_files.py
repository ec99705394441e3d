"""Which files of a program for TensorFlow 1 are its own: those get TensorFlow 1's module, libraries today's."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

from ipu_tf._compat.program_files import ProgramFiles

ROOT = Path(__file__).resolve().parents[3]


def program_files(folder: Path, python_path: tuple[str, ...] = ("lib", "app/src")) -> ProgramFiles:
    """The files of a program `app/train/main.py` beside other folders."""
    for name in ("app/train/venv/site/x-1.dist-info", "app/proj.egg-info", "app/src/proj.egg-info", "deb/x.egg-info"):
        (folder / name).mkdir(parents=True)
    return ProgramFiles(folder / "app/train/main.py", python_path=[str(folder / each) for each in python_path])


@pytest.mark.parametrize(
    ("file", "own"),
    [
        *(("app/train/main.py", True), ("app/train/nets/net.py", True), ("app/model.py", True), ("other/net.py", True)),
        *(("app/train/venv/site/x.py", False), ("deb/x.py", False), ("lib/x/y.py", False), ("app/src/x.py", False)),
        *((f"{ROOT}/{each}/x.py", False) for each in ("ipu_tf", "keras_ipu", "pytest_ipu")),
        *((f"{sysconfig.get_path('purelib')}/{each}", False) for each in ("keras/src/x.py", "x.py")),
        (os.__file__, False),
    ],
)
def test_which_files_are_of_the_program(file: str, own: bool, tmp_path: Path) -> None:
    assert program_files(tmp_path).holds(str(tmp_path / file)) is own


def test_a_checkout_of_git_is_the_program_except_for_installed_packages(tmp_path: Path) -> None:
    (tmp_path / "app/.git").mkdir(parents=True)
    files = program_files(tmp_path)
    own = ("app/src/x.py", "lib/x.py", "app/train/venv/site/x.py")
    assert [files.holds(str(tmp_path / each)) for each in own] == [True, False, False]


def test_folders_around_the_script_are_the_program_on_pythonpath_too(tmp_path: Path) -> None:
    files = program_files(tmp_path, ("app", "app/train/nets"))
    assert [files.holds(str(tmp_path / each)) for each in ("app/model.py", "app/train/nets/x.py")] == [True, True]


PROGRAM = """
    import importlib.util, pkgutil, sys
    import tensorflow as tf
    assert tf.placeholder and tf.__version__ == "1.15.5"
    import ipu_tf, keras_ipu, library
    for package in ipu_tf, keras_ipu:
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if importlib.util.find_spec(found.name).origin.endswith(".py") and not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    ours = [(name, module) for name, module in sys.modules.items() if name.split(".")[0] in ("ipu_tf", "keras_ipu")]
    print(len(ours) > 500, library.tf.__version__[0])
    print([(name, key) for name, module in ours for key, value in vars(module).items()
           if type(value).__name__ == "TensorFlow1"])
"""


def test_no_module_of_this_project_and_of_pythonpath_gets_the_programs_tensorflow(tmp_path: Path) -> None:
    for name, text in {"app/main.py": PROGRAM, "lib/library.py": "import tensorflow as tf"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(textwrap.dedent(text))
    env = dict(os.environ, PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path / 'lib'}", TF_CPP_MIN_LOG_LEVEL="3")
    command = [sys.executable, "-m", "ipu_tf", str(tmp_path / "app/main.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["True 2", "[]"]
