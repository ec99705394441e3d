"""Recorded events in the trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

from ipu_tf.device.cache.whole_file import write_whole
from ipu_tf.device.timeline.host_trace import HostTrace, Sample, Span


def trace_events(trace: HostTrace, pid: int, name: str) -> Iterator[dict[str, Any]]:
    """Yields the events of a process, without samples of NaN and infinity: JSON has none.

    Args:
        trace: what was recorded.
        pid: number of the process.
        name: what the process is called.
    """
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    for thread, called in trace.names().items():
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "args": {"name": called}}
    for span in trace.spans:
        yield _span(span, pid)
    for sample in trace.samples:
        if all(map(math.isfinite, sample.values)):
            yield _sample(sample, pid)


def write_trace(path: str | os.PathLike[str], events: Iterable[dict[str, Any]]) -> None:
    """Writes events as a JSON file; one that is there is replaced.

    Raises:
        OSError: if it cannot be written.
        ValueError: if an event has NaN or infinity, which JSON has not.
    """
    text = json.dumps({"traceEvents": list(events), "displayTimeUnit": "ms"}, allow_nan=False).encode()
    write_whole(path, lambda file: file.write(text))


def _span(span: Span, pid: int) -> dict[str, Any]:
    event = {"name": span.label, "cat": span.channel, "pid": pid, "tid": span.thread, "ts": span.start}
    return {**event, "ph": "i", "s": "t"} if span.instant else {**event, "ph": "X", "dur": span.duration}


def _sample(sample: Sample, pid: int) -> dict[str, Any]:
    """A counter; a heatmap has one value for each bin."""
    if sample.edges:
        names = [f"[{low:g}, {high:g})" for low, high in itertools.pairwise(sample.edges)]
        values = dict(zip(names, sample.values, strict=True))
    else:
        values = {sample.series: sample.values[0]}
    unit = f" ({sample.unit})" if sample.unit else ""
    return {"ph": "C", "name": f"{sample.plot}{unit}", "pid": pid, "tid": 0, "ts": sample.time, "args": values}
