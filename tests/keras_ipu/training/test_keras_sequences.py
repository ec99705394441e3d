"""Several calls of one Keras model where replicas and stages have JAX devices of their own, with both backends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("backend", "devices"), [("tensorflow", 4), pytest.param("jax", 2, marks=pytest.mark.slow), ("jax", 4)]
)
def test_sequences_of_calls_are_those_of_stock_keras(backend: str, devices: int) -> None:
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
    environment = os.environ | flags | {"KERAS_BACKEND": backend}
    command = [sys.executable, "-m", "tests.helpers.keras_sequences", "--count", "1", "--seed", str(devices)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
