"""Runs the linter, the type checker, and further source rules of this project."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ipu_tf", "keras_ipu", "pytest_ipu", "examples", "benchmarks", "tests")
CHECKERS = {
    "ruff": ["ruff", "check", "--quiet", "--output-format=concise"],
    "ruff format": ["ruff", "format", "--check", "--quiet"],
    "mypy": ["mypy", "--no-error-summary"],
}
#: The one file that reads the process's environment.
ENVIRONMENT = "ipu_tf/device/environment.py"
ENVIRONMENT_NAMES = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_checker_has_no_complaint(checker: str) -> None:
    folders = [name for name in FOLDERS if any((ROOT / name).rglob("*.py"))]
    command = [sys.executable, "-m", *CHECKERS[checker], *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def environment_reads(text: str) -> Iterator[int]:
    """The lines of a module that take the environment from `os`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT_NAMES:
            if ast.unparse(node.value) == "os":
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (node.lineno for alias in node.names if alias.name in ENVIRONMENT_NAMES)


def test_one_file_reads_the_environment() -> None:
    files = [path for package in ("ipu_tf", "keras_ipu") for path in (ROOT / package).rglob("*.py")]
    reads = {str(path.relative_to(ROOT)): list(environment_reads(path.read_text())) for path in files}
    assert {file: lines for file, lines in reads.items() if lines and file != ENVIRONMENT} == {}


@pytest.mark.parametrize(
    "text", ["import os\nos.environ['A']", "import os\nos.getenv('A')", "\nfrom os import environ as e, path"]
)
def test_a_read_of_the_environment_is_found(text: str) -> None:
    assert list(environment_reads(text)) == [2]


def test_other_uses_of_os_are_none() -> None:
    assert list(environment_reads("import os\nos.path.join('a')\nfrom os import path\nx.environ")) == []
