"""Measures start and end of each pipeline task; off by default, as it takes a thread for each device."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from typing import Any

from ipu_tf.device.schedule.timetable import Task
from ipu_tf.device.timeline import recording


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
    """Records the end of each task of a pass; its start is when its device was free and it had been dispatched.

    Waiting for values of other devices counts as the task's own time: the host does not see when they arrive.

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
        found = sorted((one for of_device in self._found for one in of_device), key=lambda one: one.start)
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
            trace = recording()
            if trace is not None:
                start, stop = trace.microseconds(max(free, given)), trace.microseconds(end)
                trace.add("Pipeline", f"{task.label} stage {task.stage}", start, stop, lane=f"IPU {device}")
            free = end
