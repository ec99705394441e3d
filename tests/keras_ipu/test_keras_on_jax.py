"""Keras on JAX: runs the tests in processes with KERAS_BACKEND=jax, as the backend is chosen at import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.captures_two_backends import CAPTURED, captured_run
from tests.helpers.keras_two_backends import RUNS, SAVED, trained

ROOT = Path(__file__).resolve().parents[2]
ON_BOTH = (
    "tests/keras_ipu/addons/test_addons_layers.py",
    "tests/keras_ipu/optimizers/test_capture_layers.py",
    "tests/keras_ipu/training/test_keras_async_callbacks.py",
    "tests/keras_ipu/test_keras_bad_input.py",
    "tests/keras_ipu/test_keras_debug.py",
    "tests/keras_ipu/test_keras_hub.py",
    "tests/keras_ipu/training/test_keras_embeddings.py",
    "tests/keras_ipu/training/test_keras_predict_ahead.py",
    "tests/keras_ipu/training/test_keras_run_ahead.py",
    "tests/keras_ipu/test_keras_serving.py",
    "tests/keras_ipu/pipeline/test_keras_stage_split.py",
)
"""Tests that ask the same of both backends."""
#: Keras makes arrays of its variables in a way that NumPy 2 no longer likes.
JAX_WARNS = "ignore:__array__ implementation:DeprecationWarning"


@pytest.fixture(scope="module")
def on_jax(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What Keras on JAX trained; fails with the output of its process if any check there failed."""
    path = tmp_path_factory.mktemp("jax") / "trained.npz"
    helpers = ("keras_jax_checks", "captures_jax_checks", "user_lines_jax_checks")
    checks = [*(f"tests/helpers/{name}.py" for name in helpers), *ON_BOTH]
    command = [sys.executable, "-m", "pytest", "-q", "-W", JAX_WARNS, *checks]
    ran = subprocess.run(
        command, cwd=ROOT, env=SAVED.named(path), capture_output=True, text=True, check=False, timeout=1200
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    return dict(np.load(path)) | dict(np.load(path.with_name("captured.npz")))


def of_run(run: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a run, by their names in it."""
    return {name.removeprefix(f"{run}/"): array for name, array in arrays.items() if name.startswith(f"{run}/")}


@pytest.mark.parametrize("run", sorted(RUNS))
def test_both_backends_give_the_same_numbers(run: str, on_jax: dict[str, np.ndarray]) -> None:
    wanted, found = trained(run), of_run(run, on_jax)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=5e-6, err_msg=name)


@pytest.mark.parametrize("run", sorted(CAPTURED))
def test_captured_gradients_do_the_same_on_both_backends(run: str, on_jax: dict[str, np.ndarray]) -> None:
    wanted, found = captured_run(run), of_run(run, on_jax)
    assert found.keys() == wanted.keys()
    half = CAPTURED[run][-1] == "float16"
    for name, array in wanted.items():
        # Half precision differs in its last places, and a gradient of many may so pass the edge of the histogram.
        # Factors and counts are the same.
        tolerance = 2.5e-3 if half and array.ndim else 1e-5
        allowed = 2 if "histogram" in name else tolerance * np.abs(array).max()
        np.testing.assert_allclose(found[name], array, rtol=0, atol=allowed, err_msg=name)
