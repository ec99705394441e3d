"""Pipeline schedules (grouped, interleaved, sequential) as functions from a pipeline's shape to its timetable.

Two stages on two devices, four micro-batches in training (F forward, B backward, with the micro-batch; U update):

    grouped      IPU 0   F0    F1    F2    B0 F3 B1    B2    B3    U
                 IPU 1         F0    B0 F1 B1 F2 B2 F3 B3          U

    interleaved  IPU 0   F0    F1 B0 F2 B1 F3 B2    B3 U
                 IPU 1      F0 B0 F1 B1 F2 B2 F3 B3    U

    sequential   IPU 0   F0       B0 F1       B1 F2       B2 F3       B3 U
                 IPU 1      F0 B0       F1 B1       F2 B2       F3 B3    U

In Megatron's and PyTorch's words interleaved is 1F1B (one forward, one backward): the passes are interleaved, not the
stages; several stages on a device ("virtual stages") are given by a device mapping. Grouped alternates passes likewise,
with twice as many micro-batches in flight, and is the default of `pipelining_ops.pipeline` and of Keras models. No
schedule is GPipe's.

With N stages a micro-batch passes stage s forward s ticks after it started, and backward 2 N - 1 - s ticks after: the
schedules differ in when micro-batches start only.
"""

from __future__ import annotations

from ipu_tf.device.schedule.pipeline_shape import PipelineShape
from ipu_tf.device.schedule.schedule_rules import ScheduleError, check_micro_batches, check_schedule, overlap_length
from ipu_tf.device.schedule.timetable import Schedule, Timetable
from ipu_tf.device.schedule.timetable_builder import build


def grouped(shape: PipelineShape, micro_batches: int, io_tiles: bool = False) -> Timetable:
    """Timetable of the grouped schedule: a micro-batch starts every tick, and a stage goes both ways in one tick.

    Args:
        shape: the pipeline.
        micro_batches: how many micro-batches an execution takes: a multiple of the stages, in training of twice the
            stages.
        io_tiles: whether input and output overlap with computation; then any number from two above that on is allowed.

    Raises:
        MicroBatchCountError: a number of micro-batches that the schedule cannot run.
    """
    check_schedule(Schedule.GROUPED, shape)
    check_micro_batches(micro_batches, overlap_length(Schedule.GROUPED, shape), io_tiles)
    return build(Schedule.GROUPED, shape, micro_batches)


def interleaved(shape: PipelineShape, micro_batches: int) -> Timetable:
    """Timetable of the interleaved schedule (1F1B): a stage goes forward in one tick and backward in the next.

    Args:
        shape: the pipeline. In training no two stages may share a device, and recomputation cannot be part of backward
            passes.
        micro_batches: how many micro-batches an execution takes: a multiple of the stages.

    Raises:
        MicroBatchCountError: a number of micro-batches that the schedule cannot run.
        ScheduleError: a shape that it cannot run.
    """
    check_schedule(Schedule.INTERLEAVED, shape)
    check_micro_batches(micro_batches, overlap_length(Schedule.INTERLEAVED, shape))
    return build(Schedule.INTERLEAVED, shape, micro_batches)


def sequential(shape: PipelineShape, micro_batches: int, batch_serialization_iterations: int = 1) -> Timetable:
    """Timetable of the sequential schedule: one stage at a time, and one micro-batch after the other.

    Args:
        shape: the pipeline. Recomputation can only be part of backward passes.
        micro_batches: how many micro-batches an execution takes: any number from 1.
        batch_serialization_iterations: into how many parts each is split, which a stage takes one after the other in
            its tick. The parts then count as the timetable's micro-batches.

    Raises:
        MicroBatchCountError: there are no micro-batches.
        ScheduleError: a shape that it cannot run, or split micro-batches with stages on several devices.
        ValueError: fewer parts than 1.
    """
    check_schedule(Schedule.SEQUENTIAL, shape)
    check_micro_batches(micro_batches, overlap_length(Schedule.SEQUENTIAL, shape))
    parts = batch_serialization_iterations
    if parts < 1:
        raise ValueError(f"batch_serialization_iterations must be at least 1. Received: {parts}.")
    if parts > 1 and len(set(shape.mapping)) > 1:
        raise ScheduleError(
            "When using batch serialization, all the pipeline stages need to be mapped to a single IPU."
        )
    return build(Schedule.SEQUENTIAL, shape, micro_batches, parts)


def timetable(schedule: Schedule, shape: PipelineShape, micro_batches: int) -> Timetable:
    """Returns the timetable of a schedule; see `grouped`, `interleaved` and `sequential`.

    Example:
        >>> made = timetable(Schedule.GROUPED, PipelineShape(2, training=False), 2)
        >>> [[[task.label for task in cell] for cell in tick] for tick in made.cells]
        [[['F0'], []], [['F1'], ['F0']], [[], ['F1']]]
    """
    if schedule is Schedule.GROUPED:
        return grouped(shape, micro_batches)
    return (interleaved if schedule is Schedule.INTERLEAVED else sequential)(shape, micro_batches)
