"""Keras on JAX: runs tests in a process with KERAS_BACKEND=jax, as the backend is chosen at import."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.captures_two_backends import CAPTURED, captured_run
from tests.helpers.keras_two_backends import RUNS, SAVED, trained
from tests.helpers.subprocess_cases import Results, parametrize_cases, run_cases

ON_JAX = tuple(
    f"tests/helpers/{name}_jax_checks.py"
    for name in ("keras", "captures", "addons", "user_lines", "host_functions", "host_zeros")
)
"""Tests of what is particular to JAX."""
ON_BOTH = (
    "tests/keras_ipu/addons/test_addons_layers.py",
    "tests/keras_ipu/optimizers/test_capture_layers.py",
    "tests/keras_ipu/training/test_keras_async_callbacks.py",
    "tests/keras_ipu/training/test_keras_adapt.py",
    "tests/keras_ipu/training/test_keras_bad_input.py",
    "tests/keras_ipu/training/test_keras_callbacks.py",
    "tests/keras_ipu/parity/test_keras_debug.py",
    "tests/keras_ipu/generation/test_keras_generate.py",
    "tests/keras_ipu/generation/test_interrupted_streams.py",
    "tests/keras_ipu/generation/test_keras_generate_refusals.py",
    "tests/keras_ipu/generation/test_models_by_samplers.py",
    "tests/keras_ipu/generation/test_served_generation.py",
    "tests/keras_ipu/training/test_keras_hub.py",
    "tests/keras_ipu/training/test_keras_open_shapes.py",
    "tests/keras_ipu/training/test_keras_reports.py",
    "tests/keras_ipu/training/test_keras_eager.py",
    "tests/keras_ipu/training/test_keras_embeddings.py",
    "tests/keras_ipu/training/test_keras_interrupts.py",
    "tests/keras_ipu/training/test_keras_own_steps.py",
    "tests/keras_ipu/training/test_keras_predict_ahead.py",
    "tests/keras_ipu/training/test_keras_run_ahead.py",
    "tests/keras_ipu/training/test_partial_batches.py",
    "tests/keras_ipu/training/test_replica_metrics.py",
    "tests/keras_ipu/training/test_replica_steps.py",
    "tests/keras_ipu/resume/test_exact_resume.py",
    "tests/keras_ipu/saving/test_keras_serving.py",
    "tests/keras_ipu/training/test_keras_sparse_data.py",
    "tests/keras_ipu/pipeline/test_keras_stage_split.py",
)
"""Tests that ask the same of both backends: with TensorFlow they run where they are, with all of their parameters."""
SAVES = tuple(
    f"tests/helpers/{name}_jax_checks.py::test_runs_that_the_parent_process_compares" for name in ("keras", "captures")
)
"""They save the arrays that are compared here."""
#: Keras makes arrays of its variables in a way that NumPy 2 no longer likes.
JAX_WARNS = "ignore:__array__ implementation:DeprecationWarning"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_cases(metafunc, ON_JAX, thinned=ON_BOTH)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the arrays that Keras on JAX trained."""
    return tmp_path_factory.mktemp("jax") / "trained.npz"


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, saved: Path) -> Results:
    """Results of the process with Keras on JAX."""
    return run_cases(request, SAVED.named(saved), options=("-W", JAX_WARNS), always=SAVES)


@pytest.fixture(scope="module")
def on_jax(results: Results, saved: Path) -> dict[str, np.ndarray]:
    """Arrays that Keras on JAX trained, by run and name."""
    for case in SAVES:
        results.check(case)
    return dict(np.load(saved)) | dict(np.load(saved.with_name("captured.npz")))


def test_case_with_keras_on_jax(case: str, results: Results) -> None:
    results.check(case)


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
