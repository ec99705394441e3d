"""Asserts that work ran on the device, by its counters of programs and executions."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from ipu_tf.device.counters import COUNTERS, DeviceCounts


@dataclasses.dataclass
class Measured:
    """Counts of the device's work within `device_work`; filled in at its end."""

    counts: DeviceCounts = dataclasses.field(default_factory=DeviceCounts)


@contextlib.contextmanager
def device_work() -> Iterator[Measured]:
    """Within it, the device's work is counted."""
    before, measured = COUNTERS.read(), Measured()
    yield measured
    measured.counts = COUNTERS.read().since(before)
