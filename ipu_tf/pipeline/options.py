"""Pipeline options: schedule, recomputation mode, stage options."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from ipu_tf._arguments.named_int_enum import NamedIntEnum
from ipu_tf._config.library_options import warn_of_unknown
from ipu_tf.device.schedule.pipeline_shape import ALL_DEVICES
from ipu_tf.device.schedule.timetable import Schedule

__all__ = ["ALL_DEVICES", "PipelineSchedule", "PipelineStageOptions", "RecomputationMode"]


class PipelineSchedule(NamedIntEnum):
    """Schedule of a pipeline's stages on the devices; see `ipu_tf.pipeline.Schedule`."""

    Grouped = Schedule.GROUPED
    Interleaved = Schedule.INTERLEAVED
    Sequential = Schedule.SEQUENTIAL


class RecomputationMode(enum.Enum):
    """Recomputation of activations for backward passes, where it is allowed.

    It changes what the stages of a pipeline on several devices keep, and what its pictures and tables show; numbers are
    the same with each.
    """

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


@dataclasses.dataclass(frozen=True)
class PipelineStageOptions:
    """Poplar options of one stage: checked and recorded, without effect in emulation.

    Args:
        convolution_options: for convolutions, by name.
        matmul_options: for matrix products, by name.
        slice_options: for slices, by name.

    Raises:
        TypeError: for options that are not a dictionary.
    """

    convolution_options: dict[str, Any] | None = None
    matmul_options: dict[str, Any] | None = None
    slice_options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, (dict, type(None))):
                raise TypeError(f"PipelineStageOptions.{field.name} must be dictionary.")
            warn_of_unknown(f"PipelineStageOptions.{field.name}", value or {})
            object.__setattr__(self, field.name, dict(value or {}))

    @property
    def empty(self) -> bool:
        """Returns whether no option is set."""
        return not (self.convolution_options or self.matmul_options or self.slice_options)
