"""Pipelines as data: timetables, memory, timing, pictures, layer partition.

What else belongs to pipelines, from the user's call to the device:

    ipu_tf.ops.pipelining_ops     Graphcore's `pipeline(...)`; its checks and its loop are in `ipu_tf._pipelining`
    keras_ipu.pipeline            stages of Keras models: assigned by the user, by scopes or by cost
    ipu_tf.lowering.stages        cuts the loop into the forward, backward and update pass of each stage
    ipu_tf.device.schedule        schedules (grouped; interleaved, known as 1F1B; sequential) and their timetables
    ipu_tf.device.run             `pipeline_run` runs stages on several JAX devices by a timetable; else `loop_run`
    ipu_tf.pipeline               here: what a timetable, or a model's stages, say about time and memory

Nothing here imports TensorFlow. A timetable comes from one of the three schedules:

    >>> from ipu_tf.pipeline import PipelineShape, interleaved, timetable_text
    >>> print(timetable_text(interleaved(PipelineShape(2), micro_batches=2)))
    interleaved, training, 2 stages on 2 IPUs, 2 micro-batches, 7 ticks
                    ramp-up         | ramp-down | update
    tick            0   1   2   3   | 4   5     | 6
    IPU 0  stage 0  F0  ·   F1  B0  | ·   B1    | U
    IPU 1  stage 1  ·   F0  B0  F1  | B1  ·     | U
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from ipu_tf.device.schedule.pipeline_shape import ALL_DEVICES, PipelineShape
from ipu_tf.device.schedule.schedule_rules import (
    MicroBatchCountError,
    ScheduleError,
    check_micro_batches,
    check_schedule,
    default_recomputation,
    overlap_length,
)
from ipu_tf.device.schedule.schedules import grouped, interleaved, sequential, timetable
from ipu_tf.device.schedule.timetable import Phases, Placed, Recomputation, Schedule, Task, TaskKind, Timetable
from ipu_tf.device.schedule.timetable_checks import TimetableError, check, problems
from ipu_tf.pipeline import trace_events
from ipu_tf.pipeline.balance import split_layers
from ipu_tf.pipeline.balance_text import split_text
from ipu_tf.pipeline.costs import StageCosts, StageTimes
from ipu_tf.pipeline.memory import Moment, Peak, device_peaks, moments, peak_stash, stage_peaks, stash
from ipu_tf.pipeline.picture import TimetablePicture
from ipu_tf.pipeline.report import StageReport, schedule_table, stage_reports, stage_table
from ipu_tf.pipeline.split import LayerCosts, Share, Split, SplitError
from ipu_tf.pipeline.svg import timetable_svg
from ipu_tf.pipeline.text import timetable_text
from ipu_tf.pipeline.timing import Bubble, Planned, bubble, plan, tick_lengths
from ipu_tf.pipeline.trace_events import Measured, chrome_trace, trace_json

if TYPE_CHECKING:
    from ipu_tf._pipelining.recomputation_mode import recomputation_of
    from ipu_tf.device.run.pipeline_counts import PipelineCounts, pipeline_counts
    from ipu_tf.device.run.pipeline_placement import (
        PipelineDevicesError,
        may_run_on_devices,
        pipelines_on_one_device,
        require_one_device,
        run_on_devices,
    )

__all__ = [
    "ALL_DEVICES",
    "Bubble",
    "LayerCosts",
    "Measured",
    "MicroBatchCountError",
    "Moment",
    "Peak",
    "Phases",
    "PipelineCounts",
    "PipelineDevicesError",
    "PipelineShape",
    "Placed",
    "Planned",
    "Recomputation",
    "Schedule",
    "ScheduleError",
    "Share",
    "Split",
    "SplitError",
    "StageCosts",
    "StageReport",
    "StageTimes",
    "Task",
    "TaskKind",
    "Timetable",
    "TimetableError",
    "TimetablePicture",
    "bubble",
    "check",
    "check_micro_batches",
    "check_schedule",
    "chrome_trace",
    "default_recomputation",
    "device_peaks",
    "grouped",
    "interleaved",
    "may_run_on_devices",
    "moments",
    "overlap_length",
    "peak_stash",
    "pipeline_counts",
    "pipelines_on_one_device",
    "plan",
    "problems",
    "recomputation_of",
    "require_one_device",
    "run_on_devices",
    "schedule_table",
    "sequential",
    "split_layers",
    "split_text",
    "stage_peaks",
    "stage_reports",
    "stage_table",
    "stash",
    "tick_lengths",
    "timetable",
    "timetable_svg",
    "timetable_text",
    "trace_json",
]

#: What stands on JAX or TensorFlow, which the rest does without: imported when it is first used.
_ON_JAX = {
    "PipelineCounts": "ipu_tf.device.run.pipeline_counts",
    "PipelineDevicesError": "ipu_tf.device.run.pipeline_placement",
    "may_run_on_devices": "ipu_tf.device.run.pipeline_placement",
    "pipeline_counts": "ipu_tf.device.run.pipeline_counts",
    "pipelines_on_one_device": "ipu_tf.device.run.pipeline_placement",
    "recomputation_of": "ipu_tf._pipelining.recomputation_mode",
    "require_one_device": "ipu_tf.device.run.pipeline_placement",
    "run_on_devices": "ipu_tf.device.run.pipeline_placement",
}

#: The former name of `trace_events`, which programs may import.
trace = sys.modules[f"{__name__}.trace"] = trace_events


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _ON_JAX:
            return getattr(importlib.import_module(_ON_JAX[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the public names, those that are not imported yet included."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
