"""Programs beyond the published memory of an IPU: one warning, or an error before anything runs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._config import capacity_check
from ipu_tf.reports import CapacityWarning
from tests.helpers.device_counts import device_work

SIDE = 64


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    """No configuration before and after."""
    ipu.config.reset_ipu_configuration()
    yield
    ipu.config.reset_ipu_configuration()


def configure(ipus: int = 1, **options: str) -> None:
    """Configures so many IPUs, with options of Poplar's engine."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.compilation_poplar_options = {name.replace("_", "."): value for name, value in options.items()}
    config.configure_ipu_system()


def squared(function: Any) -> Any:
    """Runs a function on a matrix."""
    return ipu.ipu_strategy.IPUStrategy().run(function, args=[tf.ones([SIDE, SIDE])])


def new_function() -> Any:
    """Makes a function of a matrix of 16 KiB that needs a second one."""
    return tf.function(lambda x: tf.linalg.matmul(x, x))


def test_a_program_that_does_not_fit_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_check, "IPU_BYTES", 20_000)
    configure()
    function = new_function()
    with pytest.warns(CapacityWarning) as said, device_work() as work:
        for _ in range(3):
            assert squared(function)[0, 0] == SIDE
    assert (len(said), work.counts.programs, work.counts.executions) == (1, 1, 3)
    text = str(said[0].message)
    assert "needs 32.0 KiB of one replica at its peak (modelled" in text and "19.5 KiB" in text
    assert "MatMul/dot_general (temporaries) 16.0 KiB" in text and "input 0 (read only) 16.0 KiB" in text
    assert "Try " in text and "debug.allowOutOfMemory" in text


@pytest.mark.parametrize(("size", "warned"), [(32_767, True), (32_768, False)])
def test_the_limit_is_the_peak_of_the_report(size: int, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_check, "IPU_BYTES", size)
    configure()
    function = new_function()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", CapacityWarning)
        squared(function)
    assert [each.category for each in said] == [CapacityWarning] * warned


def test_small_programs_are_not_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def traced(*_: object) -> None:
        raise AssertionError("a program of 32 KiB was traced again")

    monkeypatch.setattr(capacity_check, "report_of", traced)
    configure()
    assert squared(new_function())[0, 0] == SIDE


def test_ipus_of_a_replica_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_check, "IPU_BYTES", 40_000)
    configure(ipus=2)

    @tf.function
    def on_two(x: tf.Tensor) -> tf.Tensor:
        with ipu.scopes.ipu_shard(0):
            x = tf.linalg.matmul(x, x)
        with ipu.scopes.ipu_shard(1):
            return x + 1.0

    assert squared(on_two)[0, 0] == SIDE + 1


def test_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_check, "IPU_BYTES", 1)
    configure(debug_allowOutOfMemory="true")
    assert squared(new_function())[0, 0] == SIDE


@pytest.mark.parametrize("in_environment", [False, True])
def test_an_error_comes_before_anything_runs(in_environment: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_check, "IPU_BYTES", 20_000)
    if in_environment:
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps({"debug.allowOutOfMemory": "false"}))
    configure(debug_allowOutOfMemory="true" if in_environment else "false")
    variable = tf.Variable(np.ones([SIDE, SIDE], np.float32))
    function = tf.function(lambda x: variable.assign_add(tf.linalg.matmul(x, x)))
    with device_work() as work:
        with pytest.raises(tf.errors.ResourceExhaustedError, match="needs .* of one replica at its peak"):
            squared(function)
        assert work.counts.executions == 0
        assert np.all(variable.numpy() == 1.0)
        monkeypatch.setattr(capacity_check, "IPU_BYTES", 10**9)
        squared(function)
    assert np.all(variable.numpy() == 1.0 + SIDE)
    assert "debug.allowOutOfMemory" not in str(ipu.emulation.ignored_arguments())


def test_other_values_are_refused() -> None:
    with pytest.raises(ValueError, match="debug.allowOutOfMemory must be 'true' or 'false'. Received: 'maybe'"):
        configure(debug_allowOutOfMemory="maybe")
