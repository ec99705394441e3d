"""`HostTrace`: events of this process with their times, kept until they are written to a file."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator, Sequence

from ipu_tf._state.registry import ProcessValue, register_state

_MOST_EVENTS = 1_000_000
_LANES = 1_000_000_000
"""Where the numbers of lanes that are no threads begin; Linux gives threads smaller ones."""
CHANNELS = ("Keras", "Compile", "XLA", "Device", "Feeds", "Callbacks", "Pipeline")
"""Names of the channels of this package's own events."""
DISABLED: set[str] = register_state("channels of events that are disabled", set())
"""Names of the channels that no recording records."""


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """Something that took a time.

    Attributes:
        channel: what it belongs to.
        label: what it was.
        thread: the thread's number in the system, or that of a lane.
        start: in microseconds of the system's clock, since 1970.
        duration: in microseconds; 0 for an instant event.
        instant: whether it is an instant event.
    """

    channel: str
    label: str
    thread: int
    start: float
    duration: float
    instant: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """A value of a graph's series, or the counts of a heatmap's bins, at a time.

    Attributes:
        plot: name of the graph or heatmap.
        series: name of the series; "" for a heatmap.
        unit: of its values.
        time: in microseconds since 1970.
        values: the value; of a heatmap one count for each bin.
        edges: of the bins; none for a graph.
    """

    plot: str
    series: str
    unit: str
    time: float
    values: tuple[float, ...]
    edges: tuple[float, ...] = ()


class HostTrace:
    """Events of a process. Threads may add to it at the same time.

    Args:
        channels: names of those that are recorded; None for all.

    Attributes:
        spans: what took a time, and instant events, in the order in which they ended.
        samples: values of graphs and heatmaps.
        dropped: how many events came after a million of them.
    """

    def __init__(self, channels: Sequence[str] | None = None) -> None:
        self.spans: list[Span] = []
        self.samples: list[Sample] = []
        self.dropped = 0
        self._channels = None if channels is None else frozenset(channels)
        self._names: dict[int, str] = {}
        self._lanes: dict[str, int] = {}
        self._open: dict[tuple[int, str, str], list[float]] = {}
        self._offset = time.time() - time.perf_counter()
        self._lock = threading.Lock()

    def records(self, channel: str) -> bool:
        """Returns whether a channel is recorded."""
        return channel not in DISABLED and (self._channels is None or channel in self._channels)

    def now(self) -> float:
        """Returns the time in microseconds since 1970."""
        return self.microseconds(time.perf_counter())

    def microseconds(self, seconds: float) -> float:
        """Returns a time of `time.perf_counter` in microseconds since 1970."""
        return 1e6 * (self._offset + seconds)

    def add(self, channel: str, label: str, start: float, end: float, lane: str = "", instant: bool = False) -> None:
        """Records an event, unless its channel is not recorded.

        Args:
            channel: what it belongs to.
            label: what it was.
            start: in microseconds since 1970.
            end: when it ended.
            lane: shown beside the threads under this name; "" for the present thread.
            instant: whether it is an instant event.
        """
        if not self.records(channel):
            return
        with self._lock:
            thread = self._lane(lane) if lane else self._thread()
            if len(self.spans) >= _MOST_EVENTS:
                self.dropped += 1
            else:
                self.spans.append(Span(channel, label, thread, start, max(end - start, 0.0), instant))

    def sample(self, sample: Sample) -> None:
        """Records a value of a graph or heatmap."""
        with self._lock:
            if len(self.samples) >= _MOST_EVENTS:
                self.dropped += 1
            else:
                self.samples.append(sample)

    @contextlib.contextmanager
    def span(self, channel: str, label: str) -> Iterator[None]:
        """Context whose time is recorded, also where it ends with an error."""
        start = self.now()
        try:
            yield
        finally:
            self.add(channel, label, start, self.now())

    def begin(self, channel: str, label: str) -> None:
        """Begins an event of the present thread; `end` ends it."""
        with self._lock:
            self._open.setdefault((threading.get_native_id(), channel, label), []).append(self.now())

    def end(self, channel: str, label: str) -> None:
        """Ends the event that was begun last with this channel and label in this thread; none if there is none."""
        with self._lock:
            begun = self._open.get((threading.get_native_id(), channel, label))
            start = begun.pop() if begun else None
        if start is not None:
            self.add(channel, label, start, self.now())

    def close_open(self) -> None:
        """Ends the events that were begun and not ended, in their threads."""
        with self._lock:
            left, self._open = self._open, {}
            for (thread, channel, label), starts in left.items():
                if self.records(channel):
                    self.spans += [Span(channel, label, thread, start, self.now() - start) for start in starts]

    def names(self) -> dict[int, str]:
        """Returns the names of threads and lanes by their numbers."""
        with self._lock:
            return {**self._names, **{number: name for name, number in self._lanes.items()}}

    def _thread(self) -> int:
        """Returns the number of the present thread; the lock is held."""
        number = threading.get_native_id()
        if number not in self._names:
            self._names[number] = threading.current_thread().name
        return number

    def _lane(self, name: str) -> int:
        """Returns the number of a lane; the lock is held."""
        return self._lanes.setdefault(name, _LANES + len(self._lanes))


_trace: ProcessValue[HostTrace | None] = register_state("events of the host", ProcessValue(None))
_NOTHING = contextlib.nullcontext()


def use(trace: HostTrace | None) -> None:
    """Sets where events are recorded from now on; None for nowhere."""
    _trace.value = trace


def recording() -> HostTrace | None:
    """Returns where events are recorded; None if nothing is recorded."""
    return _trace.value


def span(channel: str, label: str) -> contextlib.AbstractContextManager[None]:
    """Returns the context whose time is recorded; one that does nothing if nothing is recorded.

    Args:
        channel: what it belongs to, such as "Device".
        label: what is done, such as "execute".
    """
    trace = _trace.value
    return _NOTHING if trace is None else trace.span(channel, label)
