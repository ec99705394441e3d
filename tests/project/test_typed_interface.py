"""Completion and type checkers know the public interface: `dir`, mypy and pyright, on programs as users write them."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ipu_tf", "ipu_tf.ops", "ipu_tf.optimizers", "ipu_tf.pipeline", "keras_ipu")

#: A program with the faults that its comments mark, each on its own line.
PROGRAM = '''\
"""A program."""
import ipu_tf as ipu
import keras_ipu
from ipu_tf import pipeline

cfg = ipu.config.IPUConfig()
cfg.auto_select_ipus = 1
cfg.auto_select_ipus = [1, 2]
cfg.auto_select_ipus = "one"  # fault
cfg.auto_select_ipu = 1  # fault
cfg.floating_point_behaviour.inv = "yes"  # fault
cfg.floating_point_behaviour.invalid = True  # fault
cfg.io_tiles = 4  # fault
cfg.selection_order = 3  # fault
cfg.selection_order = ipu.config.SelectionOrder.ZIGZAG
cfg.device_connection.type = ipu.config.DeviceConnectionType.NEVER
cfg.compilation_poplar_options = {"target.syncMethod": 1}  # fault
print(cfg.io_tiles.num_io_tile)  # fault
ipu.strateg  # fault
ipu.ops.los  # fault
keras_ipu.PipelineStag  # fault
ipu.pipelining_ops.pipeline([], gradient_accumulation_cout=1)  # fault
ipu.ipu_compiler.compile(print, inputs=3)  # fault
ipu.loops.repeat(1)  # fault
pipeline.timetable_svg(3)  # fault
keras_ipu.check_parity()  # fault
keras_ipu.PipelineStage()  # fault


@ipu.outlined_function
def doubled(x: float) -> float:
    """A function."""
    return 2 * x


@ipu.nn_ops.multi_conv(options={})
def tripled(x: float) -> float:
    """A function."""
    return 3 * x


doubled("a")  # fault
tripled("a")  # fault
print(doubled(1.0) + tripled(1.0))
strategy = ipu.ipu_strategy.IPUStrategy()
strategy.run(print, args=())
strategy.run(print, arguments=())  # fault
'''
FAULTS = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# fault")}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program as a file, outside of the repository."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_mypy_reports_what_is_misspelt_or_of_a_wrong_type(program: Path) -> None:
    # The configuration's sections are for this repository; the packages are found by `mypy_path`.
    settings = program.with_name("mypy.ini")
    settings.write_text(f"[mypy]\nmypy_path = {ROOT}\n[mypy-tensorflow.*,keras.*]\nignore_missing_imports = True\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir", str(ROOT / ".mypy_cache")]
    done = subprocess.run([*command, str(program)], cwd=program.parent, capture_output=True, text=True, check=False)
    lines = re.findall(r"^program\.py:(\d+): error: ", done.stdout, re.MULTILINE)
    assert set(map(int, lines)) == FAULTS, done.stdout + done.stderr


def test_pyright_reports_what_is_misspelt_or_of_a_wrong_type(program: Path) -> None:
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)], "reportMissingModuleSource": False}
    program.with_name("pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, program.name], cwd=program.parent, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}
    assert lines == FAULTS, done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_every_completed_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    names = [name for name in dir(module) if not name.startswith("__")]
    assert set(getattr(module, "__all__", ())) <= set(names)
    assert [name for name in names if not hasattr(module, name)] == []


def test_completion_shows_modules_before_they_are_imported() -> None:
    code = "import ipu_tf, sys; assert 'ipu_tf.loops' not in sys.modules; print(*dir(ipu_tf))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"loops", "pipeline", "pipelining_ops", "config", "outlined_function", "pva", "test_utils"} <= set(
        done.stdout.split()
    )
    assert "importlib" not in done.stdout.split()


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_what_completion_shows(package: str) -> None:
    """The imports for type checkers are those that `__getattr__` makes."""
    module = importlib.import_module(package)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text())
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    lazy = {name for name in dir(module) if not name.startswith("__")} - set(getattr(module, "_OLD_NAMES", ()))
    assert lazy - imported - defined == set()
