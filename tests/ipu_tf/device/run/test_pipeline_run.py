"""Pipelines on several JAX devices: the files `*_on_devices.py`, in a process that is told to have four."""

from __future__ import annotations

import pytest

from tests.helpers.subprocess_cases import Results, parametrize_cases, run_cases

FILES = tuple(f"tests/helpers/{name}_on_devices.py" for name in ("pipeline", "keras", "numbers", "capacity"))
THINNED = tuple(f"tests/helpers/{name}_on_devices.py" for name in ("recomputation", "replicas"))
"""Of their schedules and modes of recomputation the first and the last, and all of them as slow tests."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_cases(metafunc, FILES, thinned=THINNED)


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Results:
    """Results of the process with four devices."""
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    return run_cases(request, environment)


def test_on_four_devices(case: str, results: Results) -> None:
    results.check(case)
