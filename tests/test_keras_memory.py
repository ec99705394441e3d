"""Runs `keras_memory_checks.py` in a process of its own: among other tests nobody could tell whose memory grows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_nothing_is_left_behind() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "tests/keras_memory_checks.py"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert "3 passed" in ran.stdout
