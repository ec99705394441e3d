"""Counts compilations, executions, steps and uploads of the device, for reports and tests."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

from ipu_tf._state.registry import register_state


@dataclasses.dataclass(frozen=True)
class DeviceCounts:
    """Values of the device's counters at one time.

    Attributes:
        programs: programs compiled (one for each program and set of shapes).
        executions: program executions that finished.
        steps: loop iterations those executions ran; an execution without a streamed loop counts as one.
        replicas: the most replicas any execution used.
        uploads: values of variables copied from the host to the device.
        loads: programs whose compiled code came from the executable cache; `programs` does not count these.
    """

    programs: int = 0
    executions: int = 0
    steps: int = 0
    replicas: int = 1
    uploads: int = 0
    loads: int = 0

    def since(self, earlier: DeviceCounts) -> DeviceCounts:
        """Returns the difference to an `earlier` reading."""
        return DeviceCounts(
            self.programs - earlier.programs,
            self.executions - earlier.executions,
            self.steps - earlier.steps,
            self.replicas,
            self.uploads - earlier.uploads,
            self.loads - earlier.loads,
        )


class DeviceCounters:
    """Thread-safe counters. The process has one, `COUNTERS`.

    Example:
        >>> from ipu_tf.device.counters import COUNTERS
        >>> before = COUNTERS.read()
        >>> COUNTERS.read().since(before).executions
        0
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = DeviceCounts()
        self._listeners: tuple[Callable[[str], None], ...] = ()

    def listen(self, listener: Callable[[str], None]) -> None:
        """Registers `listener`, which is called with "program", "load", "upload" or "execution" for each event."""
        with self._lock:
            self._listeners += (listener,)

    def read(self) -> DeviceCounts:
        """Returns the current counts."""
        with self._lock:
            return self._counts

    def clear(self) -> None:
        """Sets every count to zero. Listeners stay."""
        with self._lock:
            self._counts = DeviceCounts()

    def count_program(self, loaded: bool = False) -> None:
        """Counts a program that was compiled for one set of shapes, or `loaded` from the executable cache."""
        with self._lock:
            now = self._counts
            self._counts = dataclasses.replace(
                now, programs=now.programs + (not loaded), loads=now.loads + bool(loaded)
            )
        self._notify("load" if loaded else "program")

    def count_upload(self) -> None:
        """Counts a variable's value that was copied to the device."""
        with self._lock:
            self._counts = dataclasses.replace(self._counts, uploads=self._counts.uploads + 1)
        self._notify("upload")

    def count_execution(self, steps: int = 1, replicas: int = 1) -> None:
        """Counts a finished execution of `steps` iterations on `replicas` replicas."""
        with self._lock:
            now = self._counts
            self._counts = dataclasses.replace(
                now,
                executions=now.executions + 1,
                steps=now.steps + steps,
                replicas=max(now.replicas, replicas),
            )
        self._notify("execution")

    def _notify(self, what: str) -> None:
        for listener in self._listeners:
            listener(what)


COUNTERS = register_state("counts of the device", DeviceCounters())
