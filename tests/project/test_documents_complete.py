"""Documents name every page, variable, flag and use of private API; the walk of a training step is the real one."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ipu_tf._config.flag_table import FLAGS
from ipu_tf.device import environment
from tests.project.test_layering import PRIVATE_API_FILES

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "docs" / "environment.md"
BUILD_NOTES_BYTES = 8192


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs" / "decisions").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


def test_every_decision_has_its_date() -> None:
    undated = [
        f"{path.name}: {heading}"
        for path in (ROOT / "docs" / "decisions").glob("*.md")
        for heading, line in re.findall(r"^## (.+)\n\n(.*)$", path.read_text(), re.MULTILINE)
        if heading != "Tried and dropped" and not re.match(r"\d{1,2} [A-Z][a-z]+ \d{4}", line)
    ]
    assert undated == []


def test_build_notes_are_short() -> None:
    assert (ROOT / "BUILD_NOTES.md").stat().st_size < BUILD_NOTES_BYTES


def test_every_file_that_uses_private_api_is_in_the_build_notes() -> None:
    rows = set(re.findall(r"^\| `([\w/]+\.py)` \|", (ROOT / "BUILD_NOTES.md").read_text(), re.MULTILINE))
    assert set(PRIVATE_API_FILES) - rows == set()


def test_every_variable_that_is_read_is_documented() -> None:
    text = ENVIRONMENT.read_text()
    # The tables name what is read; the list after them what others read.
    named = set(re.findall(r"^\| `([A-Z][A-Z0-9_]+)` \|", text, re.MULTILINE))
    assert named == variables_read()


def variables_read() -> set[str]:
    """The names that the one module which reads the environment has among its constants."""
    constants = ast.walk(ast.parse(Path(environment.__file__).read_text()))
    texts = (node.value for node in constants if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {text for text in texts if re.fullmatch(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|NPROC", text)}


def test_every_flag_is_documented_with_its_default_and_effect() -> None:
    rows = re.findall(r"^\| `--(\w+)` \| `([^`]*)` \| ([\w ]+) \|", ENVIRONMENT.read_text(), re.MULTILINE)
    wanted = [
        (flag.name, repr(flag.default), "refused" if flag.refused else flag.treatment.effect.value) for flag in FLAGS
    ]
    assert rows == wanted


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_the_walk_of_a_training_step_is_the_one_that_is_taken(backend: str) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## One training step")[2]
    tensorflow, _, jax = text.partition("### Keras on JAX")
    named = set(re.findall(r"`((?:ipu_tf|keras_ipu)/[\w/]+\.py)`", {"tensorflow": tensorflow, "jax": jax}[backend]))
    command = [sys.executable, "-m", "tests.helpers.training_step_files"]
    surroundings = {**os.environ, "KERAS_BACKEND": backend}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(named) > 5
    assert named - set(done.stdout.split()) == set()
