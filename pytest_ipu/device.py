"""`Device`: the emulated IPUs of one test, with what they compiled, executed and took of memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipu_tf.config import IPUConfig, reset_ipu_configuration
from ipu_tf.emulation import DeviceCounts, clear_session, device_counts
from ipu_tf.ipu_strategy import IPUStrategy
from ipu_tf.reports import Report, last
from ipu_tf.test_utils import get_ci_num_ipus

_STATUS = Path("/proc/self/status")
_RESET_PEAK = Path("/proc/self/clear_refs")


class Device:
    """The emulated IPUs of a test. Figures are those since the test began.

    Attributes:
        count: the number of IPUs.
        strategy: an `IPUStrategy` for them.
    """

    def __init__(self, count: int) -> None:
        """Begins to count."""
        self.count = count
        self.strategy = IPUStrategy()
        self._before = device_counts()
        self._memory = _begin_peak()

    @property
    def counts(self) -> DeviceCounts:
        """Programs, executions, steps, uploads and loads since the test began."""
        return device_counts().since(self._before)

    @property
    def programs(self) -> int:
        """Programs compiled since the test began: one for each program and set of shapes."""
        return self.counts.programs

    @property
    def executions(self) -> int:
        """Executions that finished since the test began. 0 means that stock TensorFlow ran everything."""
        return self.counts.executions

    @property
    def steps(self) -> int:
        """Steps of these executions."""
        return self.counts.steps

    @property
    def peak_memory(self) -> int:
        """Bytes by which the process's resident memory exceeded, at its peak, that at the test's begin (Linux).

        Raises:
            NotImplementedError: where the system does not tell.
        """
        if self._memory is None:
            raise NotImplementedError(f"Peak memory is read from {_STATUS}, which this system does not have.")
        return max(0, _memory("VmHWM") - self._memory)

    def report(self) -> Report:
        """Returns the report on the program that the test executed last: peak, categories, FLOPs, measured times.

        Raises:
            AssertionError: the test has executed nothing.
            LookupError: the program is gone with its model or function.
        """
        if not self.executions:
            raise AssertionError("There is nothing to report on: the emulated IPU has executed nothing in this test.")
        return last()

    def check(
        self,
        *,
        programs: int | None = None,
        executions: int | None = None,
        steps: int | None = None,
        peak_memory: float | None = None,
    ) -> None:
        """Fails the test unless the device did what is given; the message has every figure that differs.

        Args:
            programs: programs compiled.
            executions: executions.
            steps: their steps.
            peak_memory: the most bytes by which resident memory may have grown.

        Raises:
            AssertionError: something differs.
        """
        __tracebackhide__ = True
        wanted = {"programs": programs, "executions": executions, "steps": steps}
        wrong = [
            f"{name}: expected {number}, received {getattr(self, name)}"
            for name, number in wanted.items()
            if number is not None and number != getattr(self, name)
        ]
        if peak_memory is not None and self.peak_memory > peak_memory:
            wrong.append(f"peak_memory: expected at most {peak_memory:,.0f} bytes, received {self.peak_memory:,}")
        if wrong:
            raise AssertionError("The emulated IPU did not do what the test expects.\n  " + "\n  ".join(wrong))


@contextlib.contextmanager
def configured(count: int) -> Iterator[Device]:
    """Configures one device of `count` IPUs; clears all that the emulator remembers at the end, whatever happened."""
    reset_ipu_configuration()
    config = IPUConfig()
    config.auto_select_ipus = count
    try:
        config.configure_ipu_system()
        yield Device(count)
    finally:
        clear_session()


def require(count: int) -> None:
    """Skips the test where `TF_IPU_COUNT` gives tests fewer IPUs than it needs."""
    there = get_ci_num_ipus()
    if there < count:
        pytest.skip(f"needs {count} IPUs; TF_IPU_COUNT gives tests {there}")


def _begin_peak() -> int | None:
    """Resets the process's peak of resident memory; returns the bytes it has now, None where that cannot be known."""
    try:
        _RESET_PEAK.write_text("5")
        return _memory("VmRSS")
    except OSError:
        return None


def _memory(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise NotImplementedError(f"{_STATUS} has no {field}.")
