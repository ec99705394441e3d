"""`opened_trace`: events of a `.pvti` file as `pva.openTrace` gives them: processes, threads, events within events."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable

from ipu_tf._pvti.pvti_file import read_pvti
from ipu_tf.device.timeline.host_trace import Span


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of a thread, with those within it. Times are of the machine that recorded it.

    Attributes:
        label: what it was.
        channel: what it belongs to.
        timestamp: when it began, in microseconds since 1970.
        duration: in microseconds; 0 for an instant event.
    """

    label: str
    channel: str
    timestamp: float
    duration: float
    _within: list[Event] = dataclasses.field(default_factory=list, repr=False)

    def children(self) -> list[Event]:
        """Returns the events of the same thread that began and ended within it, without those within these."""
        return list(self._within)


@dataclasses.dataclass(frozen=True)
class TraceThread:
    """A thread, or a lane such as `IPU 0`.

    Attributes:
        tid: its number.
        name: its name.
        events: its events that are within no other, in the order of time.
    """

    tid: int
    name: str
    events: tuple[Event, ...] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class TraceProcess:
    """A process.

    Attributes:
        pid: its number.
        threads: its threads, the one with the first event first.
    """

    pid: int
    threads: tuple[TraceThread, ...]

    def thread(self, tid: int) -> TraceThread:
        """Returns the thread of a number.

        Raises:
            ValueError: if there is none.
        """
        for each in self.threads:
            if each.tid == tid:
                return each
        raise ValueError(f"The process has threads {[each.tid for each in self.threads]}. Received: {tid}.")


@dataclasses.dataclass(frozen=True)
class Trace:
    """A recorded trace.

    Attributes:
        processes: its processes.
    """

    processes: tuple[TraceProcess, ...]

    def process(self, pid: int) -> TraceProcess:
        """Returns the process of a number.

        Raises:
            ValueError: if there is none.
        """
        for each in self.processes:
            if each.pid == pid:
                return each
        raise ValueError(f"The trace has processes {[each.pid for each in self.processes]}. Received: {pid}.")


def opened_trace(path: str | os.PathLike[str]) -> Trace:
    """Returns the trace of a file; raises as `read_pvti` does."""
    pid, names, spans, _ = read_pvti(path)
    by_thread: dict[int, list[Span]] = {}
    for span in spans:
        by_thread.setdefault(span.thread, []).append(span)
    threads = (TraceThread(tid, names.get(tid, ""), _nested(found)) for tid, found in by_thread.items())
    return Trace((TraceProcess(pid, tuple(threads)),))


def _nested(spans: Iterable[Span]) -> tuple[Event, ...]:
    """Returns the outermost events of a thread, given by start, longer ones first."""
    outer: list[Event] = []
    around: list[Event] = []
    for span in spans:
        event = Event(span.label, span.channel, span.start, span.duration)
        while around and span.start + span.duration > around[-1].timestamp + around[-1].duration:
            around.pop()
        (around[-1]._within if around else outer).append(event)
        around += [] if span.instant else [event]
    return tuple(outer)
