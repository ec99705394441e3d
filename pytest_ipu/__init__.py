"""pytest plugin for programs on the emulated IPU: the marker `ipu`, and the fixtures `ipu` and `ipu_report`.

    @pytest.mark.ipu(16)
    def test_a_training_step(ipu):
        with ipu.strategy.scope():
            ...
        ipu.check(programs=1, executions=1)

    def test_the_peak(ipu, ipu_report):
        ipu.strategy.run(step)
        assert ipu_report().peak < 4 * 2**20

It is a package of its own: pytest imports its plugins in every run, and nothing of TensorFlow is to be imported, nor
anything of it patched, in runs whose tests do not ask for an IPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ipu_tf.reports import Report
    from pytest_ipu.device import Device

__all__ = ["ipu", "ipu_report", "pytest_configure"]

_MARKER = (
    "ipu(count=1): the test runs with so many emulated IPUs, and is skipped where TF_IPU_COUNT says there are fewer"
)


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker, as `--strict-markers` requires."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def ipu(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A `Device`: as many emulated IPUs as the marker says, configured for the test; nothing of it is left after it."""
    from pytest_ipu.device import configured, require

    marker = request.node.get_closest_marker("ipu")
    count = _count(*marker.args, **marker.kwargs) if marker else 1
    require(count)
    with configured(count) as device:
        yield device


@pytest.fixture
def ipu_report(ipu: Device) -> Callable[[], Report]:
    """A function that returns the `ipu_tf.reports.Report` on the program that the test executed last.

    It is `Device.report`: `ipu_report().peak` is the program's modelled peak in bytes, `.measured` has its executions.
    """
    return ipu.report


@pytest.fixture(autouse=True)
def _configured_by_marker(request: pytest.FixtureRequest) -> None:
    """Configures the IPUs of a marked test that does not take the fixture."""
    if request.node.get_closest_marker("ipu"):
        request.getfixturevalue("ipu")


def _count(count: int = 1) -> int:
    if type(count) is not int or count < 1:
        raise pytest.UsageError(f"pytest.mark.ipu takes a number of IPUs, at least 1. Received: {count!r}.")
    return count
