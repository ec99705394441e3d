"""Keras 2 (`tf_keras`) where it cannot run on the device: it is not installed, or was imported too late."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from ipu_tf.emulation import EmulationError
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

ROOT = Path(__file__).resolve().parents[3]
_PROGRAM = """
import sys
import tensorflow as tf
import ipu_tf as ipu
sys.modules["tf_keras"] = None  # as if it was not installed
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategy().scope():
    tf.keras.Sequential([])
"""


@pytest.mark.parametrize(("asked", "refused"), [("1", True), ("0", False)])
def test_the_variable_is_named_before_tensorflow_looks_for_the_package(asked: str, refused: bool) -> None:
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": asked, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _PROGRAM]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode != 0) is refused, ran.stderr
    last = ran.stderr.strip().splitlines()[-1]
    assert ("EmulationError: TF_USE_LEGACY_KERAS" in last and "`pip install tf_keras`" in last) is refused


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_of_the_packages_own_loops_is_refused(strategy: Any, compiled: bool) -> None:  # noqa: F811
    def run_step(value: tf.Tensor) -> tf.Tensor:
        return value

    run_step.__module__ = "tf_keras.src.engine.training"
    step = tf.function(run_step, jit_compile=True) if compiled else run_step
    # As `fit` of the package does: in a graph of its own.
    training = tf.function(lambda value: strategy.run(step, (value,)), autograph=False)
    with pytest.raises(EmulationError, match="Keras 2, and its loops .*Import `tf_keras` before.*run_step"):
        training(tf.constant(1.0))
