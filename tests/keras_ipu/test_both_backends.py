"""What is particular to Keras on JAX, in a process of its own; and both backends give the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.captures_two_backends import CAPTURED, captured_run
from tests.helpers.keras_two_backends import RUNS, SAVED, trained
from tests.helpers.subprocess_cases import KERAS_ON_JAX, Results, parametrize_cases, run_cases

ON_JAX = tuple(
    f"tests/helpers/{name}_jax_checks.py"
    for name in ("keras", "captures", "addons", "user_lines", "host_functions", "host_zeros")
)
"""Tests of what is particular to JAX."""
SAVES = tuple(
    f"tests/helpers/{name}_jax_checks.py::test_runs_that_the_parent_process_compares" for name in ("keras", "captures")
)
"""They save the arrays that are compared here."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_cases(metafunc, ON_JAX)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the arrays that Keras on JAX trained."""
    return tmp_path_factory.mktemp("jax") / "trained.npz"


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, saved: Path) -> Results:
    """Results of the process with Keras on JAX."""
    return run_cases(request, SAVED.named(saved), options=KERAS_ON_JAX, always=SAVES)


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
