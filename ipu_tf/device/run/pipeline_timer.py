"""Measures start and end of each pipeline task; off by default, as it takes a thread for each device."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from ipu_tf.device.schedule.timetable import Task, TaskKind
from ipu_tf.device.timeline import recording

_TOWARDS = {TaskKind.FORWARD: -1, TaskKind.BACKWARD: 1}
"""From a pass's stage to the one whose values it takes."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """Task with its measured times.

    Attributes:
        task: the task.
        device: its device.
        start: when it started, in seconds after the execution did.
        end: when it ended, in seconds after the execution started.
    """

    task: Task
    device: int
    start: float
    end: float


class PipelineTimer:
    """Records the end of each task of a pass.

    It starts when its device is free, it has been dispatched, and the pass before it on its micro-batch's way has
    ended, on whichever device. The way of values from one device to another is counted as the task's own time.

    Args:
        devices: how many devices there are.
    """

    def __init__(self, devices: int) -> None:
        self._waiting: list[queue.Queue[tuple[Task, float, Any] | None]] = [queue.Queue() for _ in range(devices)]
        self._found: list[list[Measured]] = [[] for _ in range(devices)]
        self._threads = [
            threading.Thread(target=self._watch, args=(device,), name=f"pipeline-clock-{device}", daemon=True)
            for device in range(devices)
        ]
        for thread in self._threads:
            thread.start()

    def given(self, task: Task, device: int, done: Any) -> None:
        """Records that a task was dispatched to a device; `done` is an array that is ready when it is finished."""
        self._waiting[device].put((task, time.perf_counter(), done))

    def stop(self) -> tuple[Measured, ...]:
        """Waits for all tasks; returns them by start time, which is 0 for the first."""
        for waiting in self._waiting:
            waiting.put(None)
        for thread in self._threads:
            thread.join()
        found = _after_their_inputs([one for of_device in self._found for one in of_device])
        _add_to_recording(found)
        first = found[0].start if found else 0.0
        return tuple(dataclasses.replace(one, start=one.start - first, end=one.end - first) for one in found)

    def _watch(self, device: int) -> None:
        free = 0.0
        while (item := self._waiting[device].get()) is not None:
            task, given, done = item
            # A task that fails ends too: the run itself says why.
            with contextlib.suppress(Exception):
                done.block_until_ready()
            end = time.perf_counter()
            self._found[device].append(Measured(task, device, max(free, given), end))
            free = end


def _after_their_inputs(tasks: Sequence[Measured]) -> list[Measured]:
    """Returns the tasks by their start, which is not before what they take was computed."""
    ends: dict[Task | None, float] = {one.task: one.end for one in tasks}
    starts = (min(one.end, max(one.start, ends.get(_before(one.task), one.start))) for one in tasks)
    later = [dataclasses.replace(one, start=start) for one, start in zip(tasks, starts, strict=True)]
    return sorted(later, key=lambda one: one.start)


def _before(task: Task) -> Task | None:
    """Returns the pass of another stage whose values a pass takes, if there is one; None for other kinds of tasks."""
    if task.kind not in _TOWARDS:
        return None
    return dataclasses.replace(task, stage=task.stage + _TOWARDS[task.kind])


def _add_to_recording(tasks: Sequence[Measured]) -> None:
    trace = recording()
    if trace is not None:
        for one in tasks:
            start, end = trace.microseconds(one.start), trace.microseconds(one.end)
            trace.add("Pipeline", f"{one.task.label} stage {one.task.stage}", start, end, lane=f"IPU {one.device}")
