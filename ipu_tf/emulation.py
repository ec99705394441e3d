"""Reports on emulation: device counts, ignored options and arguments, pipelines on one device; `clear_session`."""

from __future__ import annotations

from ipu_tf._config.emulation_error import EmulationError
from ipu_tf._config.ignored_arguments import IgnoredArgument, ignored_arguments, record_ignored
from ipu_tf._state.registry import clear_states
from ipu_tf.device.counters import COUNTERS, DeviceCounts
from ipu_tf.device.feeds import queues
from ipu_tf.device.run.pipeline_counts import PipelineCounts, pipeline_counts
from ipu_tf.device.run.pipeline_placement import pipelines_on_one_device

__all__ = [
    "DeviceCounts",
    "EmulationError",
    "IgnoredArgument",
    "PipelineCounts",
    "clear_session",
    "device_counts",
    "ignored_arguments",
    "pipeline_counts",
    "pipelines_on_one_device",
    "record_ignored",
]


def clear_session() -> None:
    """Clears what the emulator remembers in this process, as `keras.utils.clear_session` does for Keras. For tests.

    Waits for running programs, writes variables back to the host as `config.reset_ipu_configuration` does, and
    clears the rest: queues, host embedding tables, user ops, counts, random seeds, recorded arguments, and which
    messages were given. After that the process is as if `ipu_tf` had just been imported.

    Queues, loops and compiled functions that were made before must not be used any more; Keras models may be.
    Patches stay (`ipu_tf.patches.uninstall`), and numbers in names go on. docs/architecture.md lists every kind.

    Example:
        >>> import ipu_tf as ipu
        >>> ipu.config.IPUConfig().configure_ipu_system()
        >>> ipu.emulation.clear_session()
        >>> ipu.emulation.device_counts().executions
        0
    """
    queues.wait_for_programs()
    clear_states()


def device_counts() -> DeviceCounts:
    """Returns the device's counters in this process: programs compiled, executions, and steps of their loops.

    Example:
        >>> from ipu_tf.emulation import device_counts
        >>> before = device_counts()
        >>> device_counts().since(before).steps
        0
    """
    return COUNTERS.read()
