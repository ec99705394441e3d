"""Exports a timetable as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing: a track for each device."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ipu_tf.device.run.pipeline_timer import Measured
from ipu_tf.device.schedule.timetable import Task, TaskKind, Timetable
from ipu_tf.pipeline.costs import StageTimes
from ipu_tf.pipeline.memory import stash
from ipu_tf.pipeline.timing import plan, tick_lengths

_PLANNED, _MEASURED = 1, 2
_NAMES = {
    TaskKind.FORWARD: "forward",
    TaskKind.RECOMPUTE: "recompute",
    TaskKind.BACKWARD: "backward",
    TaskKind.UPDATE: "update",
}


def chrome_trace(
    timetable: Timetable,
    times: Sequence[StageTimes] | None = None,
    unit_seconds: float = 1e-3,
    measured: Sequence[Measured] = (),
) -> dict[str, Any]:
    """A timetable in the trace event format.

    Args:
        timetable: the timetable.
        times: how long the passes of each stage take; by default 1 forward, 2 backward, 1 recomputed, 0 to update.
        unit_seconds: how many seconds one unit of `times` stands for in the trace: a millisecond by default.
        measured: tasks with measured times, such as `pipeline_counts().measured`, shown in tracks of their own below
            the planned ones.

    Returns:
        What the JSON file holds: for each device a track with a slice a task, and in training for each stage a counter
        of the micro-batches it has stashed.

    Raises:
        ValueError: another number of times than stages, or a measured task ends before it starts.
    """
    scale = 1e6 * unit_seconds
    events = list(_tracks(_PLANNED, "planned timetable (emulated IPUs)", timetable.devices))
    for planned in plan(timetable, times):
        start, end = planned.start * scale, planned.end * scale
        events.append(_slice(_PLANNED, planned.task, planned.device, start, end, {"tick": planned.tick}))
    events.extend(_stash_counters(timetable, times, scale))
    if measured:
        events.extend(_tracks(_MEASURED, "measured", timetable.devices))
    for one in measured:
        if one.end < one.start:
            raise ValueError(f"A measured task must not end before it starts. Received: {one}.")
        events.append(_slice(_MEASURED, one.task, one.device, one.start * 1e6, one.end * 1e6, {}))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def trace_json(
    timetable: Timetable,
    times: Sequence[StageTimes] | None = None,
    unit_seconds: float = 1e-3,
    measured: Sequence[Measured] = (),
) -> str:
    """The text of the JSON file of `chrome_trace`, with the same arguments and errors."""
    return json.dumps(chrome_trace(timetable, times, unit_seconds, measured))


def _tracks(process: int, name: str, devices: int) -> Iterator[dict[str, Any]]:
    """The names and the order of a process's tracks."""
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
    for device in range(devices):
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": device, "args": {"name": f"IPU {device}"}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": device, "args": {"sort_index": device}}


def _slice(process: int, task: Task, device: int, start: float, end: float, more: dict[str, Any]) -> dict[str, Any]:
    about: dict[str, Any] = {"stage": task.stage} | more
    if task.micro_batch is not None:
        about["micro_batch"] = task.micro_batch
    return {
        "ph": "X",
        "name": f"{task.label} stage {task.stage}",
        "cat": _NAMES[task.kind],
        "pid": process,
        "tid": device,
        "ts": start,
        "dur": end - start,
        "args": about,
    }


def _stash_counters(timetable: Timetable, times: Sequence[StageTimes] | None, scale: float) -> Iterator[dict[str, Any]]:
    """Yields counters of the stashed micro-batches of each stage, at each tick that changes them."""
    if not timetable.training:
        return
    now, before = 0.0, (0,) * timetable.stages
    for length, counts in zip(tick_lengths(timetable, times), stash(timetable), strict=True):
        now += length
        for stage, (old, new) in enumerate(zip(before, counts, strict=True)):
            if old != new:
                name = f"stashed by stage {stage}"
                yield {"ph": "C", "name": name, "pid": _PLANNED, "ts": now * scale, "args": {"micro-batches": new}}
        before = counts
