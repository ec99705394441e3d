"""Bits of a test module's results on one core, to compare with those on all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot keep a process on one core"
)


def hashed_on_one_core(module: str) -> str:
    """Returns what a test module's function `hashed` does, in a process of its own on one core."""
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        f"from {module} import hashed; print(hashed())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.strip()
