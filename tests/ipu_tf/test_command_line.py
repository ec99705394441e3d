"""`ipu-tf`: the commands, their help, and programs that run as the launcher runs them."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ipu_tf

ROOT = Path(__file__).resolve().parents[2]


def ipu_tf_command(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as its console script does: from a folder of its own, by calling `main`."""
    script = cwd / "bin" / "ipu-tf"
    script.parent.mkdir(exist_ok=True)
    script.write_text("from ipu_tf.command_line import main\nmain()\n")
    environment = dict(os.environ, PYTHONPATH=str(ROOT), **variables)
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_run_gives_the_script_its_arguments_and_prints_stats(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside.py").write_text("value = 7")
    (tmp_path / "sub" / "train.py").write_text("import sys, beside\nprint(sys.argv, beside.value)")
    done = ipu_tf_command("run", "--stats", "sub/train.py", "--stats", "info", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first == "['sub/train.py', '--stats', 'info'] 7"
    assert last.startswith("ipu_tf: 0 programs compiled")


def test_run_finds_modules_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(__name__, 'ran')")
    assert ipu_tf_command("run", "-m", "train", cwd=tmp_path).stdout == "__main__ ran\n"


def test_info_has_versions_devices_and_variables(tmp_path: Path) -> None:
    done = ipu_tf_command("info", cwd=tmp_path, TF_IPU_COUNT="3", TF_POPLAR_FLAGS="--use_ipu_model")
    lines = dict(line.split(None, 1) for line in done.stdout.splitlines() if "=" not in line)
    assert lines["ipu_tf"] == ipu_tf.__version__
    for library in ("tensorflow", "keras", "jax", "numpy"):
        assert lines[library] == importlib.metadata.version(library)
    assert lines["IPUs"].startswith("3 emulated")
    assert lines["runs"].endswith("JAX device (cpu)")
    assert "TF_IPU_COUNT=3\n" in done.stdout and "TF_POPLAR_FLAGS=--use_ipu_model\n" in done.stdout


def test_version(tmp_path: Path) -> None:
    assert ipu_tf_command("--version", cwd=tmp_path).stdout == f"ipu-tf {ipu_tf.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_shows_the_commands(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = ipu_tf_command(*arguments, cwd=tmp_path)
    assert done.returncode == 0
    for word in ("ipu-tf run train.py --epochs 3", "ipu-tf info", "--version", "python -m ipu_tf"):
        assert word in done.stdout


def test_help_of_run_names_the_command_that_was_typed(tmp_path: Path) -> None:
    done = ipu_tf_command("run", "--help", cwd=tmp_path)
    assert "usage: ipu-tf run [OPTIONS] SCRIPT [ARGS...]" in done.stdout
    assert "python -m ipu_tf" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("train.py",), "invalid choice: 'train.py'"), (("run",), "which script?"), (("--verson",), "unrecognized")],
)
def test_a_wrong_command_line_ends_with_code_2(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    done = ipu_tf_command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
