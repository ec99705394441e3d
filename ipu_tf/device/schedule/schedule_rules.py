"""Constraints of pipeline schedules: micro-batch counts, start ticks, recomputation, device mapping."""

from __future__ import annotations

from ipu_tf.device.errors import DeviceError
from ipu_tf.device.schedule.pipeline_shape import ALL_DEVICES, PipelineShape, StageDevices
from ipu_tf.device.schedule.timetable import Recomputation, Schedule

_OTHER_NAMES = (
    "This number might be called `gradient_accumulation_count`, `gradient_accumulation_steps_per_replica` or "
    "`steps_per_execution` depending on the API used."
)
_UNSUPPORTED_RECOMPUTATION = {
    (Schedule.SEQUENTIAL, Recomputation.THEN_BACKPROPAGATE): "RecomputeThenBackpropagate",
    (Schedule.INTERLEAVED, Recomputation.WITH_BACKPROPAGATE): "RecomputeAndBackpropagateInterleaved",
}


class MicroBatchCountError(DeviceError, ValueError):
    """Raised for a number of micro-batches that the pipeline's schedule does not allow."""


class ScheduleError(DeviceError, NotImplementedError):
    """Raised if a schedule cannot be combined with another setting of the pipeline."""


def default_recomputation(schedule: Schedule) -> Recomputation:
    """Returns the recomputation that Graphcore's `RecomputationMode.Auto` selects for a schedule."""
    if schedule is Schedule.SEQUENTIAL:
        return Recomputation.WITH_BACKPROPAGATE
    return Recomputation.THEN_BACKPROPAGATE


def supports_recomputation(schedule: Schedule, recomputation: Recomputation) -> bool:
    """Returns whether a schedule supports a kind of recomputation."""
    return (schedule, recomputation) not in _UNSUPPORTED_RECOMPUTATION


def start_offsets(schedule: Schedule, shape: PipelineShape) -> tuple[int, ...]:
    """Returns the ticks at which micro-batches start within one period of the pipeline.

    A grouped schedule starts one every tick, a sequential one only the first. An interleaved one starts one wherever it
    never meets an earlier one on a device: every second tick in training with a device for each stage.

    Returns:
        Ascending ticks from 0 to less than `shape.period`, the first of them 0.

    Example:
        >>> start_offsets(Schedule.INTERLEAVED, PipelineShape(3))
        (0, 2, 4)
    """
    if schedule is Schedule.GROUPED:
        return tuple(range(shape.period))
    if schedule is Schedule.SEQUENTIAL:
        return (0,)
    passes = [_device_of(where) for where in shape.mapping]
    return _starts_without_overlap(passes + passes[::-1] if shape.training else passes)


def _device_of(where: StageDevices) -> int:
    """Returns the device of a stage, which micro-batches must not meet on; `ALL_DEVICES` for parallel stages."""
    return where if isinstance(where, int) else ALL_DEVICES


def _starts_without_overlap(passes: list[int]) -> tuple[int, ...]:
    """Returns the ticks at which micro-batches can start without two of them ever meeting on a device.

    A micro-batch visits the devices of `passes` in order, one a tick, and again after the last: started `offset` ticks
    later, it is the same cycle rotated by `offset`. Takes each tick, from 0 on, that goes with those taken before.

    Args:
        passes: the device of each pass of a micro-batch.
    """
    period = len(passes)
    chosen = [0]
    for offset in range(1, period):
        if all(
            passes[(t + offset) % period] != passes[(t + other) % period] for other in chosen for t in range(period)
        ):
            chosen.append(offset)
    return tuple(chosen)


def overlap_length(schedule: Schedule, shape: PipelineShape) -> int:
    """Returns the number of micro-batches in flight, of which the number of micro-batches must be a multiple.

    For N stages: N in inference and 2 N in training if grouped; N if interleaved with a device for each stage, and
    fewer in inference with stages that share devices; 1 if sequential.
    """
    return len(start_offsets(schedule, shape))


def check_micro_batches(count: int, overlap: int, io_tiles: bool = False) -> None:
    """Checks that a schedule can run a number of micro-batches.

    Args:
        count: the number of micro-batches of an execution.
        overlap: how many are in flight, see `overlap_length`.
        io_tiles: whether a grouped schedule overlaps input and output with computation: then any number from the
            overlap plus 2 on is allowed.

    Raises:
        MicroBatchCountError: the number is too small, or not a multiple of the overlap.
    """
    if not io_tiles and count % overlap:
        raise MicroBatchCountError(
            f"The number of iterations of the pipeline must be a multiple of {overlap}, but it is {count}. "
            + _OTHER_NAMES
        )
    least = overlap + 2 if io_tiles else overlap
    if count < least:
        raise MicroBatchCountError(
            f"The number of iterations of the pipeline must be at least {least}, but it is {count}. {_OTHER_NAMES}"
        )


def check_schedule(schedule: Schedule, shape: PipelineShape) -> None:
    """Checks that a schedule can run a pipeline of this shape.

    Raises:
        ScheduleError: an interleaved schedule is to train with several stages on one device, or the schedule does not
            go with the way of recomputing: `THEN_BACKPROPAGATE` needs ticks that a sequential schedule does not have,
            and `WITH_BACKPROPAGATE` does not go with an interleaved one.
    """
    if schedule is Schedule.INTERLEAVED and shape.training and len(set(shape.mapping)) < shape.stages:
        raise ScheduleError(
            "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages on the same "
            "device for training graphs. Please use a different pipeline schedule."
        )
    name = _UNSUPPORTED_RECOMPUTATION.get((schedule, shape.recomputation))
    if name is not None:
        raise ScheduleError(
            f"The pipelining schedule '{schedule.name.capitalize()}' does not support the recomputation mode '{name}'. "
            "Use RecomputationMode.Auto, which takes one that the schedule supports."
        )
