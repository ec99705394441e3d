"""Checks the arguments of `pipelining_ops.pipeline` and fills in defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._arguments.counts import INT32_MAX, as_integer, checked_integer, checked_iterations
from ipu_tf._config.state import current_config
from ipu_tf.device.schedule.pipeline_shape import PipelineShape
from ipu_tf.device.schedule.schedule_rules import MicroBatchCountError, check_micro_batches, overlap_length
from ipu_tf.device.schedule.timetable import Schedule
from ipu_tf.emulation import record_ignored
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_tf.pipeline.options import ALL_DEVICES, PipelineSchedule, PipelineStageOptions, RecomputationMode

Stage = Callable[..., Any] | Sequence[Callable[..., Any]]


@dataclasses.dataclass(frozen=True)
class PipelineArguments:
    """The arguments of `pipelining_ops.pipeline` that decide what it computes; see there.

    Raises:
        TypeError, ValueError, NotImplementedError: for arguments that do not go together.
        tf.errors.FailedPreconditionError: for a number of micro-batches that the schedule cannot run.
    """

    stages: Sequence[Stage]
    count: Any
    repeat_count: int
    serialization: int
    inputs: list[tf.Tensor]
    infeed_queue: IPUInfeedQueue | None
    outfeed_queue: IPUOutfeedQueue | None
    optimizer_function: Callable[..., Any] | None
    device_mapping: Any
    schedule: Any
    recomputation: Any
    dtype: Any
    accumulate_captured: bool
    outfeed_loss: bool
    outfeed_mask: Sequence[bool] | None
    accumulate_outfeed: bool
    accumulate_outfeed_dtype: Any
    reduction: Any
    name: str

    def __post_init__(self) -> None:
        if self.reduction is not Reduction.SUM and self.serialization != 1:
            raise ValueError(
                "batch_serialization_iterations != 1 is only supported when reduction_method is "
                "GradientAccumulationReductionMethod.SUM"
            )
        _check_kinds(self)
        _check_mapping(self)
        _check_outfeed(self)

    @property
    def training(self) -> bool:
        """Returns whether the pipeline trains."""
        return self.optimizer_function is not None

    @property
    def micro_batches(self) -> Any:
        """Micro-batches of one update, or of one execution in inference: a number or a tensor."""
        return self.count * self.serialization

    @property
    def overlap(self) -> int:
        """Micro-batches in flight at once: their number has to be a multiple of it."""
        mapping = tuple(tuple(where) if isinstance(where, list) else where for where in self.device_mapping)
        return overlap_length(Schedule(int(self.schedule)), PipelineShape(len(self.stages), mapping, self.training))

    @property
    def overlapped(self) -> bool:
        """Returns whether input and output overlap with computation: any count from overlap + 2 on is allowed."""
        config = current_config()
        grouped = self.schedule is PipelineSchedule.Grouped
        return bool(config is not None and config.io_tiles.place_ops_on_io_tiles and grouped)

    def check_count(self) -> None:
        """Checks the number of micro-batches, where it is a constant, against the schedule.

        Raises:
            tf.errors.FailedPreconditionError: if the schedule cannot run so many.
        """
        if isinstance(self.count, tf.Tensor):
            return
        try:
            check_micro_batches(self.count, self.overlap, self.overlapped)
        except MicroBatchCountError as error:
            raise tf.errors.FailedPreconditionError(None, None, str(error)) from None


def checked_micro_batches(count: Any) -> Any:
    """Checks the number of micro-batches; returns an int if it is constant, else an `int32[]` tensor.

    Raises:
        TypeError: for one that is no whole number.
        ValueError: if there is none, or one that is out of range.
    """
    if count is None:
        raise ValueError("gradient_accumulation_count must be specified.")
    if isinstance(count, tf.Tensor):
        constant = tf.get_static_value(count)
        if constant is None:
            return checked_iterations("gradient_accumulation_count", count)
        count = constant
    number = checked_integer("gradient_accumulation_count", count)
    if number < 0:
        raise ValueError(f"gradient_accumulation_count must be >= 0. Received: {number}.")
    if number > INT32_MAX:
        raise ValueError(f"gradient_accumulation_count must be < max int32. Received: {number}.")
    return number


def checked_stages(stages: Any) -> Any:
    """Checks that stages are functions, or lists of functions of parallel parts.

    Raises:
        TypeError: if they are not.
    """
    if not isinstance(stages, (list, tuple)):
        raise TypeError("computational_stages argument needs to be a list or a tuple.")
    for number, stage in enumerate(stages):
        if not all(map(callable, stage if isinstance(stage, (list, tuple)) else [stage])):
            raise TypeError(f"computational_stages must hold functions. Received for stage {number}: {stage!r}.")
    return stages


def checked_stage_mapping(mapping: Any) -> Any:
    """Checks that a device mapping holds devices: ints from -1 on, or lists of them for parallel parts.

    Raises:
        TypeError: for anything but integers.
        ValueError: for a number below -1.
    """
    if not isinstance(mapping, (list, tuple)):
        raise TypeError("device_mapping argument needs to be a list or a tuple.")
    for stage, where in enumerate(mapping):
        for device in where if isinstance(where, (list, tuple)) else [where]:
            number = as_integer(device)
            if number is None or not ALL_DEVICES <= number <= INT32_MAX:
                raise (TypeError if number is None else ValueError)(
                    "device_mapping must have for each stage a device from 0 on, -1 for all devices, or a list of "
                    f"devices for parallel parts. Received for stage {stage}: {where!r}."
                )
    return mapping


def checked_schedule(schedule: Any) -> PipelineSchedule:
    """Checks that a schedule is a member of its enumeration; raises a TypeError."""
    if not isinstance(schedule, PipelineSchedule):
        raise TypeError("The given pipeline_schedule is not a member of the PipelineSchedule enumeration.")
    return schedule


def checked_recomputation(mode: Any) -> RecomputationMode:
    """Checks that a recomputation mode is a member of its enumeration; raises a TypeError."""
    if not isinstance(mode, RecomputationMode):
        raise TypeError("The given recomputation_mode is not a member of the RecomputationMode enumeration.")
    return mode


def checked_stage_options(name: str, options: Any) -> Any:
    """Checks that the options of all stages are `PipelineStageOptions`.

    Raises:
        TypeError: for something else.
    """
    if not isinstance(options, (list, tuple)):
        raise TypeError(f"{name} must be a list or a tuple of PipelineStageOptions objects.")
    for option in options:
        if not isinstance(option, PipelineStageOptions):
            raise TypeError(
                f"Expected all elements of {name} to be of type PipelineStageOptions, but got {option} instead."
            )
    return options


def record_stage_options(options: Any, stages: int, name: str) -> None:
    """Records the options of all stages.

    Raises:
        ValueError: if there is not one for each stage.
    """
    if options is None:
        return
    if len(options) != stages:
        raise ValueError(
            f"{name} must be a list or a tuple of PipelineStageOptions objects of length {stages} (same number as the "
            f"number of computational stages) but is {len(options)}."
        )
    record_ignored(f"pipeline.{name}", None if all(option.empty for option in options) else list(options))


def _check_kinds(request: PipelineArguments) -> None:
    if request.serialization > 1 and request.schedule is not PipelineSchedule.Sequential:
        raise NotImplementedError("Batch serialization is only supported with the `Sequential` schedule.")


def _check_mapping(request: PipelineArguments) -> None:
    stages, mapping = request.stages, request.device_mapping
    if len(stages) < 2:
        raise ValueError("Pipeline requires at least two computational stages.")
    if len(mapping) != len(stages):
        raise ValueError(f"Each stage must be mapped to an IPU: {len(mapping)} mappings != {len(stages)} stages")
    flat = [int(device) for device in tf.nest.flatten(list(mapping))]
    if request.schedule is PipelineSchedule.Interleaved and request.training and len(flat) != len(set(flat)):
        raise NotImplementedError(
            "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages on the same "
            "device for training graphs. Please use a different pipeline schedule."
        )
    if request.serialization > 1 and len(set(flat)) != 1:
        raise NotImplementedError(
            "When using batch serialization, all the pipeline stages need to be mapped to a single IPU."
        )
    for stage, where in zip(stages, mapping, strict=True):
        if isinstance(stage, (list, tuple)) and (not isinstance(where, (list, tuple)) or len(where) != len(stage)):
            raise ValueError(
                "When the pipeline stage is a list of functions, the device mapping must also be a list of device IDs, "
                f"of the same length. Received: {len(stage)} functions on {where!r}."
            )
        if not isinstance(stage, (list, tuple)) and isinstance(where, (list, tuple)):
            raise ValueError(f"A stage that is one function has one device ID. Received: one function on {where!r}.")


def _check_outfeed(request: PipelineArguments) -> None:
    if request.outfeed_mask and not request.training:
        raise ValueError("An optimizer_function must be provided when outfeed_mask is set.")
    if request.outfeed_loss and not request.training:
        raise ValueError("An optimizer_function must be provided when outfeed_loss is True.")
    if request.outfeed_loss and request.outfeed_mask:
        raise ValueError("Only one of `outfeed_loss` and `outfeed_mask` can be set.")
    if not request.accumulate_outfeed:
        return
    if request.outfeed_queue is None:
        raise ValueError("An outfeed_queue must be provided when accumulate_outfeed is True.")
    if request.outfeed_queue.outfeed_mode is not IPUOutfeedMode.ALL:
        raise ValueError("To accumulate the outfeed, it must be in IPUOutfeedMode ALL.")
