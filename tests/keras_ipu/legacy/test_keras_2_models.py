"""Models of a program for Keras 2, in Keras 3: how they are compiled and saved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.keras_2_models_program import CHECKS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def program() -> subprocess.CompletedProcess[str]:
    """The program, in a process of its own: what Keras 2 has is for all of a process."""
    command = [sys.executable, "-m", "tests.helpers.keras_2_models_program"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=400)


@pytest.mark.parametrize("check", [each.__name__ for each in CHECKS])
def test_a_model_of_keras_2(check: str, program: subprocess.CompletedProcess[str]) -> None:
    assert f"{check}: as Keras 2 has it" in program.stdout.splitlines(), program.stderr[-3000:]
