"""Collects device events (compile, transfer, execute) as `IpuTraceEvent`s.

COUNTERS --program, load, upload, execution--> TRACE --take()--> events since the last time
"""

from __future__ import annotations

import threading
import time

from ipu_tf._state.registry import register_state
from ipu_tf.device.counters import COUNTERS
from ipu_tf.poplar.driver.trace_pb2 import IpuTraceEvent

_PROGRAM = (IpuTraceEvent.COMPILE_BEGIN, IpuTraceEvent.COMPILE_END, IpuTraceEvent.LOAD_ENGINE)


class DeviceTrace:
    """Events of the device. The process has one, `TRACE`; it records nothing until `start` is called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = False
        self._events: list[IpuTraceEvent] = []
        self._uploads = 0

    def start(self) -> None:
        """Records from now on. Calling it again changes nothing."""
        with self._lock:
            if not self._started:
                self._started = True
                COUNTERS.listen(self._record_event)

    def take(self) -> list[IpuTraceEvent]:
        """The events since the last call, oldest first. The uploads before an execution make one event."""
        with self._lock:
            events, self._events = self._events, []
            return events

    def clear(self) -> None:
        """Drops the events so far."""
        with self._lock:
            self._events, self._uploads = [], 0

    def _record_event(self, what: str) -> None:
        with self._lock:
            if what == "upload":
                self._uploads += 1
            elif what == "program":
                self._events += [IpuTraceEvent(kind, time.time()) for kind in _PROGRAM]
            elif what == "load":
                self._events.append(IpuTraceEvent(IpuTraceEvent.LOAD_ENGINE, time.time()))
            else:
                if self._uploads:
                    self._events.append(
                        IpuTraceEvent(IpuTraceEvent.HOST_TO_DEVICE_TRANSFER, time.time(), self._uploads)
                    )
                self._uploads = 0
                self._events.append(IpuTraceEvent(IpuTraceEvent.EXECUTE, time.time()))


TRACE = register_state("events of the device", DeviceTrace())
