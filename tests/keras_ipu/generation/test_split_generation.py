"""Language models whose weights are split over JAX devices by KerasHub's layout map: another process."""

from __future__ import annotations

import pytest

from tests.helpers.subprocess_cases import Results, parametrize_cases, run_cases

pytestmark = pytest.mark.slow


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_cases(metafunc, ["tests/helpers/split_generation.py"])


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Results:
    flags = {"KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    return run_cases(request, environment=flags)


def test_case_on_two_devices(case: str, results: Results) -> None:
    results.check(case)
