"""Stand-in for `libpvti`, Graphcore's library for tracing the host: channels, tracepoints, graphs and heatmaps.

Events are recorded where `PVTI_OPTIONS` asks for it; otherwise every call does nothing.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ipu_tf._pvti import session
from ipu_tf._state.registry import register_state
from ipu_tf.device import timeline
from ipu_tf.device.timeline.host_trace import Sample

__all__ = [
    "Graph",
    "HeatmapDouble",
    "HeatmapFloat",
    "HeatmapInt",
    "Series",
    "TraceChannel",
    "Tracepoint",
    "checkTraceChannel",
    "closeTrace",
    "createTraceChannel",
    "disableTraceChannel",
    "enableTraceChannel",
    "getCurrentTraceFilename",
    "instrument",
    "instrument_fn",
    "listTraceChannel",
    "traceDrivers",
    "traceFramework",
    "tracePoplar",
]

Function = TypeVar("Function", bound=Callable[..., Any])


class TraceChannel:
    """A named channel of events.

    Attributes:
        name: its name.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"TraceChannel({self.name!r})"


_channels: dict[str, TraceChannel] = register_state("channels of libpvti", {})
_BUILT_IN = tuple(map(TraceChannel, ("Drivers", "Poplar", "Framework", *timeline.CHANNELS)))
traceDrivers, tracePoplar, traceFramework = _BUILT_IN[:3]  # noqa: N816


def createTraceChannel(name: str) -> TraceChannel:  # noqa: N802
    """Returns the channel of a name: one that there is, or a new one, which is enabled.

    Example:
        >>> channel = createTraceChannel("docs")
        >>> with Tracepoint(channel, "epoch"):
        ...     pass
        >>> checkTraceChannel(channel)
        True
    """
    found = next((each for each in _BUILT_IN if each.name == name), None)
    return found or _channels.setdefault(name, TraceChannel(name))


def listTraceChannel() -> list[TraceChannel]:  # noqa: N802
    """Returns all channels: three of the library, those of this package's own events, and those that were created."""
    return [*_BUILT_IN, *_channels.values()]


def enableTraceChannel(channel: TraceChannel) -> None:  # noqa: N802
    """Records events of a channel from now on, where anything is recorded."""
    timeline.DISABLED.discard(channel.name)


def disableTraceChannel(channel: TraceChannel) -> None:  # noqa: N802
    """Records no events of a channel from now on."""
    timeline.DISABLED.add(channel.name)


def checkTraceChannel(channel: TraceChannel) -> bool:  # noqa: N802
    """Returns whether a channel is enabled."""
    return channel.name not in timeline.DISABLED


def getCurrentTraceFilename() -> str:  # noqa: N802
    """Returns the `.pvti` file that is written when the trace is closed; "" if nothing is recorded."""
    session.start_if_asked()
    return session.current_path()


def closeTrace() -> None:  # noqa: N802
    """Ends the recording and writes its files: `.pvti`, and `.json` for Perfetto."""
    session.close()


class Tracepoint:
    """Context manager: an event that lasts as long as its block.

    Args:
        channel: what it belongs to.
        label: what is done.
    """

    def __init__(self, channel: TraceChannel, label: str) -> None:
        self._channel, self._label = channel, label
        self._start = 0.0

    def __enter__(self) -> Tracepoint:
        trace = _trace(self._channel)
        self._start = 0.0 if trace is None else trace.now()
        return self

    def __exit__(self, *_: object) -> None:
        trace = _trace(self._channel)
        if trace is not None and self._start:
            trace.add(self._channel.name, self._label, self._start, trace.now())

    @staticmethod
    def begin(channel: TraceChannel, label: str) -> None:
        """Begins an event, which `end` ends in the same thread."""
        trace = _trace(channel)
        if trace is not None:
            trace.begin(channel.name, label)

    @staticmethod
    def end(channel: TraceChannel, label: str) -> None:
        """Ends the event that `begin` began last with this channel and label in this thread."""
        trace = _trace(channel)
        if trace is not None:
            trace.end(channel.name, label)

    @staticmethod
    def event(channel: TraceChannel, label: str) -> None:
        """Records an instant event."""
        trace = _trace(channel)
        if trace is not None:
            trace.add(channel.name, label, trace.now(), trace.now(), instant=True)


def instrument_fn(channel: TraceChannel) -> Callable[[Function], Function]:
    """Decorator: calls of the function are events, labelled with its name.

    Example:
        >>> @instrument_fn(createTraceChannel("docs"))
        ... def doubled(x):
        ...     return 2 * x
        >>> doubled(4)
        8
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            with Tracepoint(channel, getattr(function, "__qualname__", type(function).__name__)):
                return function(*args, **kwargs)

        return traced  # type: ignore[return-value] # it takes and returns what the function does

    return decorate


def instrument(obj: Any, methods: Iterable[str], channel: TraceChannel) -> Any:
    """Makes calls of an object's methods events; returns the object.

    Args:
        obj: the object.
        methods: names of its methods.
        channel: what the events belong to.
    """
    for name in methods:
        setattr(obj, name, instrument_fn(channel)(getattr(obj, name)))
    return obj


class Series:
    """A series of a graph; see `Graph.addSeries`."""

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph, self._name = graph, name

    def add(self, value: float) -> None:
        """Records a value of now."""
        trace = _trace(None)
        if trace is not None:
            trace.sample(Sample(self._graph.name, self._name, self._graph.unit, trace.now(), (float(value),)))


class Graph:
    """A graph of values over time.

    Args:
        name: its title.
        unit: of its values.

    Example:
        >>> Graph("Loss", "").addSeries("training").add(0.3)
    """

    def __init__(self, name: str, unit: str = "") -> None:
        self.name, self.unit = name, unit

    def addSeries(self, name: str) -> Series:  # noqa: N802
        """Returns a new series."""
        return Series(self, name)


class HeatmapDouble:
    """A heatmap: how many values are in each bin, over time.

    Args:
        name: its title.
        edges: of the bins, ascending; bin i has the values from edge i up to edge i + 1, the last one its end too.
        unit: of the values.

    Raises:
        ValueError: if there are fewer than two edges, or they do not ascend.
    """

    def __init__(self, name: str, edges: Sequence[float], unit: str = "") -> None:
        self.name, self.unit = name, unit
        self._edges = tuple(map(float, edges))
        if len(self._edges) < 2 or not all(low < high for low, high in itertools.pairwise(self._edges)):
            raise ValueError(f"Edges of a heatmap's bins must be two numbers or more that ascend. Received: {edges}.")

    def add(self, values: Iterable[float]) -> None:
        """Records values of now; those outside of all bins are left out."""
        trace = _trace(None)
        if trace is None:
            return
        counts = [0.0] * (len(self._edges) - 1)
        for value in values:
            if self._edges[0] <= value <= self._edges[-1]:
                counts[min(bisect.bisect_right(self._edges, value), len(counts)) - 1] += 1
        trace.sample(Sample(self.name, "", self.unit, trace.now(), tuple(counts), self._edges))


class HeatmapFloat(HeatmapDouble):
    """A heatmap; see `HeatmapDouble`."""


class HeatmapInt(HeatmapDouble):
    """A heatmap of whole numbers; see `HeatmapDouble`."""


def _trace(channel: TraceChannel | None) -> timeline.HostTrace | None:
    """Returns where events of a channel are recorded, if they are."""
    session.start_if_asked()
    trace = timeline.recording()
    return trace if trace is None or channel is None or trace.records(channel.name) else None
