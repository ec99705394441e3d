"""Memory of Keras models: `keras_memory_checks.py` in processes whose memory no other test changes."""

from __future__ import annotations

import pytest

from tests.helpers.subprocess_cases import KERAS_ON_JAX, Results, parametrize_cases, run_cases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_cases(metafunc, ["tests/helpers/keras_memory_checks.py"])


@pytest.fixture(scope="module", params=["tensorflow", pytest.param("jax", marks=pytest.mark.slow)])
def results(request: pytest.FixtureRequest) -> Results:
    """Results of a process with this backend of Keras."""
    return run_cases(request, {"KERAS_BACKEND": request.param}, options=KERAS_ON_JAX, timeout=600)


def test_nothing_is_left_behind(case: str, results: Results) -> None:
    results.check(case)
