"""Runs `keras_memory_checks.py` in a process of its own, whose memory no other test changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Keras on JAX makes arrays of its variables in a way that NumPy 2 no longer likes.
WARNS = "ignore:__array__ implementation:DeprecationWarning"


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_nothing_is_left_behind(backend: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-W", WARNS, "tests/helpers/keras_memory_checks.py"]
    env = {**os.environ, "KERAS_BACKEND": backend}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert "3 passed" in ran.stdout
