"""Several calls of one Keras model where replicas and stages have JAX devices of their own, with both back ends."""

from __future__ import annotations

import pytest

from tests.helpers.subprocess_cases import KERAS_ON_JAX, Results, parametrize_cases, run_cases

FILE = "tests/helpers/keras_sequence_checks.py"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_cases(metafunc, (FILE,))


@pytest.fixture(
    scope="module",
    params=[("tensorflow", 4), pytest.param(("jax", 2), marks=pytest.mark.slow), ("jax", 4)],
    ids=lambda process: f"{process[0]}-{process[1]}-devices",
)
def results(request: pytest.FixtureRequest) -> Results:
    """Results of the process with a back end of Keras and a number of JAX's devices."""
    backend, devices = request.param
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
    return run_cases(request, flags | {"KERAS_BACKEND": backend}, options=KERAS_ON_JAX, timeout=900)


def test_sequences_of_calls_are_those_of_stock_keras(case: str, results: Results) -> None:
    results.check(case)
