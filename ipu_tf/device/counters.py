"""What the emulated device has done so far: the proof that work ran there and not in TensorFlow."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class DeviceCounts:
    """A reading of the device's counters.

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
        """What happened between an `earlier` reading and this one."""
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
        """Has `listener` called with "program", "load", "upload" or "execution" for each one from now on."""
        with self._lock:
            self._listeners += (listener,)

    def read(self) -> DeviceCounts:
        """The counts so far."""
        with self._lock:
            return self._counts

    def count_program(self, loaded: bool = False) -> None:
        """A program was compiled for one set of shapes, or `loaded` from the executable cache."""
        with self._lock:
            now = self._counts
            self._counts = dataclasses.replace(
                now, programs=now.programs + (not loaded), loads=now.loads + bool(loaded)
            )
        self._tell("load" if loaded else "program")

    def count_upload(self) -> None:
        """The value of a variable was copied to the device."""
        with self._lock:
            self._counts = dataclasses.replace(self._counts, uploads=self._counts.uploads + 1)
        self._tell("upload")

    def count_execution(self, steps: int = 1, replicas: int = 1) -> None:
        """A program execution finished after `steps` iterations on `replicas` replicas."""
        with self._lock:
            now = self._counts
            self._counts = dataclasses.replace(
                now,
                executions=now.executions + 1,
                steps=now.steps + steps,
                replicas=max(now.replicas, replicas),
            )
        self._tell("execution")

    def _tell(self, what: str) -> None:
        for listener in self._listeners:
            listener(what)


COUNTERS = DeviceCounters()
