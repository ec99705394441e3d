"""Computes the timetables by which a number of micro-batches goes through a pipeline."""

from __future__ import annotations

from ipu_tf.device.errors import AccumulationCountError
from ipu_tf.device.op_locations import OpLocation
from ipu_tf.device.program.stage_program import StageProgram
from ipu_tf.device.schedule.pipeline_shape import PipelineShape
from ipu_tf.device.schedule.schedule_rules import overlap_length
from ipu_tf.device.schedule.schedules import sequential, timetable
from ipu_tf.device.schedule.timetable import Schedule, Timetable


def passes(program: StageProgram, total: int, accumulated_at: OpLocation | None = None) -> list[Timetable]:
    """Returns the timetables, one after the other, by which so many micro-batches go through a pipeline.

    Where inference may take any number, those that are left of a number that the schedule cannot run go one by one.

    Raises:
        AccumulationCountError: for a number of micro-batches that makes no whole number of updates.
        MicroBatchCountError: for a number of them to an update that the schedule cannot run.
    """
    shape = PipelineShape(program.stages, program.mapping, program.training, program.recomputation)
    schedule = Schedule(program.schedule)
    if program.count:
        if total % program.count:
            raise AccumulationCountError(program.count, total, accumulated_at)
        return [timetable(schedule, shape, program.count)] * (total // program.count)
    left = total % overlap_length(schedule, shape)
    whole = [timetable(schedule, shape, total - left)] if total > left else []
    return whole + ([sequential(shape, left)] if left else [])
