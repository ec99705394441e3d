"""How many times micro-batches go through the timetable of a pipeline, and through which."""

from __future__ import annotations

from ipu_tf.device.errors import AccumulationCountError
from ipu_tf.device.program.stage_program import StageProgram
from ipu_tf.device.schedule.pipeline_shape import PipelineShape
from ipu_tf.device.schedule.schedule_rules import overlap_length
from ipu_tf.device.schedule.schedules import sequential, timetable
from ipu_tf.device.schedule.timetable import Schedule, Timetable


def passes(program: StageProgram, total: int) -> list[Timetable]:
    """The timetables by which so many micro-batches go through a pipeline, one after the other.

    Where inference may take any number, those that are left of a number that the schedule cannot run go one by one.

    Raises:
        AccumulationCountError: for a number of micro-batches that makes no whole number of updates.
        MicroBatchCountError: for a number of them to an update that the schedule cannot run.
    """
    shape = PipelineShape(program.stages, program.mapping, program.training, program.recomputation)
    schedule = Schedule(program.schedule)
    if program.count:
        if total % program.count:
            raise AccumulationCountError(program.count, total)
        return [timetable(schedule, shape, program.count)] * (total // program.count)
    left = total % overlap_length(schedule, shape)
    whole = [timetable(schedule, shape, total - left)] if total > left else []
    return whole + ([sequential(shape, left)] if left else [])
