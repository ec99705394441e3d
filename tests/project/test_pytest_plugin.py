"""The pytest plugin: IPUs for marked tests, counts of what the device did, nothing for other tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """\
import sys

import pytest


def test_before():
    assert not {"ipu_tf", "tensorflow", "jax"} & set(sys.modules)


def add_one():
    import tensorflow as tf

    return tf.function(lambda x: x + 1)


@pytest.mark.ipu(4)
def test_counts(ipu):
    import tensorflow as tf

    from ipu_tf.emulation import record_ignored

    function = add_one()
    for _ in range(3):
        assert float(ipu.strategy.run(function, args=[tf.constant(1.0)])) == 2.0
    ipu.check(programs=1, executions=3, steps=3)
    record_ignored("pipeline.name", "x")
    assert (ipu.count, ipu.programs, ipu.executions, ipu.steps) == (4, 1, 3, 3)


@pytest.mark.ipu(4)
def test_marked_without_the_fixture():
    from ipu_tf._config.state import configured_devices

    assert [device.num_ipus for device in configured_devices()] == [4]


def test_report(ipu, ipu_report):
    import tensorflow as tf

    with pytest.raises(AssertionError, match="has executed nothing in this test"):
        ipu_report()
    function = add_one()
    for _ in range(2):
        ipu.strategy.run(function, args=[tf.ones([1024])])
    report = ipu_report()
    assert report.peak == 3 * 4096  # x, ones of its shape, and the sum
    assert report.measured.executions == 2


def test_not_marked():
    from ipu_tf._config.state import configured_devices
    from ipu_tf.emulation import DeviceCounts, device_counts, ignored_arguments

    assert configured_devices() == ()
    assert device_counts() == DeviceCounts()
    assert ignored_arguments() == ()


def test_one_ipu_by_default(ipu):
    assert ipu.count == 1 and ipu.counts.executions == 0


def test_wrong_figures(ipu):
    add_one()
    ipu.check(programs=7, executions=2)


def test_memory(ipu):
    import numpy as np

    np.full(60_000_000, 1, np.uint8)
    assert 55e6 < ipu.peak_memory < 300e6
    ipu.check(peak_memory=1e6)


@pytest.mark.ipu(17)
def test_too_many():
    raise AssertionError("runs nowhere")


@pytest.mark.ipu("2")
def test_not_a_number():
    raise AssertionError("runs nowhere")
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of a run of the tests above, in a process of its own."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "test_program.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "pytest_ipu", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA"]
    environment = dict(os.environ, PYTHONPATH=str(ROOT), TF_IPU_COUNT="16")
    arguments = ["--strict-markers", "-q", "test_program.py"]
    done = subprocess.run([*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "name",
    [
        "test_before",
        "test_counts",
        "test_marked_without_the_fixture",
        "test_report",
        "test_not_marked",
        "test_one_ipu_by_default",
    ],
)
def test_a_case_of_the_program_passes(report: str, name: str) -> None:
    assert f"PASSED test_program.py::{name}\n" in report


def test_figures_that_differ_fail_with_both(report: str) -> None:
    assert "FAILED test_program.py::test_wrong_figures" in report
    assert "programs: expected 7, received 0" in report
    assert "executions: expected 2, received 0" in report


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from Linux's /proc")
def test_peak_memory_is_that_of_the_test(report: str) -> None:
    assert re.search(r"peak_memory: expected at most 1,000,000 bytes, received \d\d,\d{3},\d{3}\b", report)


def test_too_many_ipus_skip_the_test(report: str) -> None:
    assert "needs 17 IPUs; TF_IPU_COUNT gives tests 16" in report


def test_a_count_that_is_none_is_refused(report: str) -> None:
    assert "pytest.mark.ipu takes a number of IPUs, at least 1. Received: '2'." in report
