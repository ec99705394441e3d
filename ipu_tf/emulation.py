"""Reports on emulation: device counts, ignored options and arguments, pipelines on one device."""

from __future__ import annotations

from ipu_tf._config.emulation_error import EmulationError
from ipu_tf._config.ignored_arguments import IgnoredArgument, ignored_arguments, record_ignored
from ipu_tf.device.counters import COUNTERS, DeviceCounts
from ipu_tf.device.run.pipeline_counts import PipelineCounts, pipeline_counts
from ipu_tf.device.run.pipeline_placement import pipelines_on_one_device

__all__ = [
    "DeviceCounts",
    "EmulationError",
    "IgnoredArgument",
    "PipelineCounts",
    "device_counts",
    "ignored_arguments",
    "pipeline_counts",
    "pipelines_on_one_device",
    "record_ignored",
]


def device_counts() -> DeviceCounts:
    """What the device did so far in this process: programs compiled, executions, and steps of their loops.

    Example:
        >>> from ipu_tf.emulation import device_counts
        >>> before = device_counts()
        >>> device_counts().since(before).steps
        0
    """
    return COUNTERS.read()
