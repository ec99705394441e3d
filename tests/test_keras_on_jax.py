"""Keras on its JAX backend: the backend is chosen when Keras is imported, so that takes a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.keras_two_backends import RUNS, SAVED, trained

ROOT = Path(__file__).resolve().parent.parent
ON_BOTH = (
    "tests/test_keras_async_callbacks.py",
    "tests/test_keras_bad_input.py",
    "tests/test_keras_debug.py",
    "tests/test_keras_hub.py",
)
"""Tests that ask the same of both backends."""
#: Keras makes arrays of its variables in a way that NumPy 2 no longer likes.
JAX_WARNS = "ignore:__array__ implementation:DeprecationWarning"


@pytest.fixture(scope="module")
def on_jax(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What Keras on JAX trained; fails with the output of its process if any check there failed."""
    path = tmp_path_factory.mktemp("jax") / "trained.npz"
    checks = ["tests/keras_jax_checks.py", *ON_BOTH]
    command = [sys.executable, "-m", "pytest", "-q", "-W", JAX_WARNS, *checks]
    ran = subprocess.run(
        command, cwd=ROOT, env=SAVED.named(path), capture_output=True, text=True, check=False, timeout=1200
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    return dict(np.load(path))


@pytest.mark.parametrize("run", sorted(RUNS))
def test_both_backends_give_the_same_numbers(run: str, on_jax: dict[str, np.ndarray]) -> None:
    wanted = trained(run)
    found = {name.removeprefix(f"{run}/"): array for name, array in on_jax.items() if name.startswith(f"{run}/")}
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=5e-6, err_msg=name)
