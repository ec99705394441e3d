"""`NamedIntEnum`: an `IntEnum` that prints as `Class.MEMBER`."""

from __future__ import annotations

import enum


class NamedIntEnum(enum.IntEnum):
    """An `IntEnum` with the `str` of Python before 3.11 (`Class.MEMBER`), which programs split at the dot.

    Formatting gives the number, as it did then: `f"{PipelineSchedule.Grouped}"` is "0".

    Example:
        >>> from ipu_tf.ops.pipelining_ops import PipelineSchedule
        >>> str(PipelineSchedule.Grouped), f"{PipelineSchedule.Grouped}"
        ('PipelineSchedule.Grouped', '0')
    """

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, specification: str) -> str:
        return format(int(self), specification)
