"""The tests of Keras on TensorFlow in a process with KERAS_BACKEND=jax, as the backend is chosen at import."""

from __future__ import annotations

import pytest

from tests.helpers.subprocess_cases import KERAS_ON_JAX, Results, parametrize_cases, run_cases

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
    "tests/keras_ipu/training/test_optimizers_of_steps.py",
    "tests/keras_ipu/training/test_partial_batches.py",
    "tests/keras_ipu/training/test_replica_metrics.py",
    "tests/keras_ipu/training/test_replica_steps.py",
    "tests/keras_ipu/resume/test_exact_resume.py",
    "tests/keras_ipu/saving/test_keras_serving.py",
    "tests/keras_ipu/training/test_keras_sparse_data.py",
    "tests/keras_ipu/pipeline/test_keras_stage_split.py",
)
"""Tests that ask the same of both backends: with TensorFlow they run where they are, with all of their parameters."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_cases(metafunc, (), sampled=ON_BOTH)


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Results:
    """Results of the process with Keras on JAX."""
    return run_cases(request, {"KERAS_BACKEND": "jax"}, options=KERAS_ON_JAX)


def test_case_with_keras_on_jax(case: str, results: Results) -> None:
    results.check(case)
