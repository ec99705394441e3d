"""Counts tasks, executions and stash sizes of pipelines on several devices, for reports and tests."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.run.pipeline_timer import Measured, PipelineTimer
from ipu_tf.device.schedule.timetable import Task, TaskKind, Timetable


@dataclasses.dataclass(frozen=True)
class PipelineCounts:
    """Counts of the last run of a pipeline on JAX devices.

    Attributes:
        timetable: the timetable that its last pass followed; None if there was none.
        passes: how many times it went through a timetable: updates in training.
        order: the tasks of the last pass, in the order of dispatch.
        executions: how many executables each device ran of each kind, by device and kind; where replicas are on N IPUs
            each, IPU i of replica r is device r N + i.
        stash_peaks: for each stage the most micro-batches whose activations it kept at once; 0 in inference. This and
            all bytes are those of one replica.
        stash_bytes: for each stage the most bytes that these took, those computed again for a backward pass included.
        weights: for each stage the bytes of the variables that live on its device alone.
        measured: the tasks of the last pass with the times they took, if `run_on_devices` enabled measuring.
    """

    timetable: Timetable | None
    passes: int
    order: tuple[Task, ...]
    executions: Mapping[tuple[int, TaskKind], int]
    stash_peaks: tuple[int, ...]
    stash_bytes: tuple[int, ...]
    weights: tuple[int, ...]
    measured: tuple[Measured, ...] = ()


class PipelineRecorder:
    """Recorder of a run's tasks, executions and stashes.

    Args:
        mapping: the device of each stage.
        measure: whether to measure the times of tasks.
        replicas: how many replicas do each task, at the same time.

    Attributes:
        weights: see `PipelineCounts`.
    """

    def __init__(self, mapping: tuple[int, ...], measure: bool = False, replicas: int = 1) -> None:
        self._measure = measure
        self._replicas = replicas
        self._clock: PipelineTimer | None = None
        self._timetable: Timetable | None = None
        self._mapping = mapping
        self._passes = 0
        self._order: list[Task] = []
        self._executions: Counter[tuple[int, TaskKind]] = Counter()
        self._peaks = [0] * len(mapping)
        self._bytes = [0] * len(mapping)
        self.weights: tuple[int, ...] = (0,) * len(mapping)

    def start_pass(self, timetable: Timetable) -> None:
        """Starts a new pass through a timetable."""
        self.stop_clock()
        if self._measure:
            self._clock = PipelineTimer(max(self._mapping) + 1)
        self._passes += 1
        self._timetable = timetable
        self._order = []

    def task(self, task: Task) -> None:
        """Records that a task was dispatched to its device."""
        self._order.append(task)

    def execution(self, task: Task, done: Any) -> None:
        """Records that an executable was dispatched to its stage's device; `done` is ready when it is finished."""
        device = self._mapping[task.stage]
        ipus = max(self._mapping) + 1
        self._executions.update((replica * ipus + device, task.kind) for replica in range(self._replicas))
        if self._clock is not None:
            self._clock.given(task, device, done)

    def stop_clock(self) -> tuple[Measured, ...]:
        """Stops measuring; returns the times of the pass's tasks so far."""
        clock, self._clock = self._clock, None
        return clock.stop() if clock is not None else ()

    def stashed(self, stage: int, micro_batches: int, size: int) -> None:
        """Records what a stage keeps now: number and bytes of stashed micro-batches."""
        self._peaks[stage] = max(self._peaks[stage], micro_batches)
        self._bytes[stage] = max(self._bytes[stage], size)

    def counts(self) -> PipelineCounts:
        """Returns all counts."""
        return PipelineCounts(
            timetable=self._timetable,
            passes=self._passes,
            order=tuple(self._order),
            executions=dict(self._executions),
            stash_peaks=tuple(self._peaks),
            stash_bytes=tuple(self._bytes),
            weights=self.weights,
            measured=self.stop_clock(),
        )


_last: ProcessValue[PipelineCounts | None] = register_state("counts of the last pipeline", ProcessValue(None))


def record(counts: PipelineCounts) -> None:
    """Stores the counts of the newest run."""
    _last.value = counts


def pipeline_counts() -> PipelineCounts | None:
    """Returns the counts of the last pipeline that ran on several JAX devices; None if none did in this process."""
    return _last.value
