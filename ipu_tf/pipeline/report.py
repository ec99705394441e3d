"""Tables that compare stages and schedules of pipelines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ipu_tf.device.schedule.timetable import TaskKind, Timetable
from ipu_tf.pipeline.costs import StageCosts, StageTimes
from ipu_tf.pipeline.memory import Peak, peak_stash, stage_peaks
from ipu_tf.pipeline.tables import bytes_text, count_text, share_text, table
from ipu_tf.pipeline.timing import bubble


@dataclasses.dataclass(frozen=True)
class StageReport:
    """Figures of one stage of a pipeline.

    Attributes:
        stage: its number.
        devices: the devices it is on.
        layers: the names of its layers.
        parameters: how many numbers its trained variables have.
        flops_share: its share of the pipeline's floating-point operations, 0 to 1.
        stashed: the most micro-batches it has stashed.
        recomputed: how many forward passes it repeats in an execution.
        peak: the most bytes it has at once.
    """

    stage: int
    devices: tuple[int, ...]
    layers: tuple[str, ...]
    parameters: int
    flops_share: float
    stashed: int
    recomputed: int
    peak: Peak


def stage_reports(timetable: Timetable, costs: Sequence[StageCosts]) -> tuple[StageReport, ...]:
    """Returns the figures of each stage of a pipeline.

    Args:
        timetable: the timetable.
        costs: what each stage computes and keeps.

    Raises:
        ValueError: another number of costs than stages.
    """
    peaks, stashed = stage_peaks(timetable, costs), peak_stash(timetable)
    repeated = [task.stage for task in timetable.order() if task.kind is TaskKind.RECOMPUTE]
    flops = sum(cost.flops for cost in costs)
    return tuple(
        StageReport(
            stage=stage,
            devices=timetable.stage_devices[stage],
            layers=cost.layers,
            parameters=cost.parameters,
            flops_share=cost.flops / flops if flops else 0.0,
            stashed=stashed[stage],
            recomputed=repeated.count(stage),
            peak=peaks[stage],
        )
        for stage, cost in enumerate(costs)
    )


def stage_table(reports: Sequence[StageReport]) -> str:
    """The reports as a table of text, a line a stage."""
    what = ["parameters", "FLOPs", "stashed", "recomputed", "resident", "activations", "peak"]
    rows = [
        [
            str(report.stage),
            ",".join(map(str, report.devices)),
            str(len(report.layers)),
            count_text(report.parameters),
            share_text(report.flops_share),
            str(report.stashed),
            str(report.recomputed),
            bytes_text(report.peak.resident_bytes),
            bytes_text(report.peak.stashed_bytes),
            bytes_text(report.peak.total_bytes),
        ]
        for report in reports
    ]
    return table(["stage", "IPU", "layers", *what], rows, left=2)


def schedule_table(timetables: Sequence[Timetable], times: Sequence[StageTimes] | None = None) -> str:
    """Schedules side by side: ticks, time, idle share by cells and by time, and the stash of each stage.

    Args:
        timetables: the timetables.
        times: how long the passes of each stage take; by default 1 forward, 2 backward, 1 recomputed, 0 to update.

    Raises:
        ValueError: another number of times than a timetable's stages.
    """
    header = ["schedule", "ticks", "time", "idle cells", "idle time", "stash of each stage"]
    rows = []
    for timetable in timetables:
        lost = bubble(timetable, times)
        stashed = " ".join(map(str, peak_stash(timetable)))
        shares = [share_text(lost.cell_share), share_text(lost.time_share)]
        rows.append([timetable.schedule.name.lower(), str(timetable.ticks), f"{lost.time:g}", *shares, stashed])
    return table(header, rows)
