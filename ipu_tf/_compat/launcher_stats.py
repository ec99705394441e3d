"""Prints the `--stats` line: programs compiled, executions, steps, replicas, devices."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import sys

from ipu_tf.device.counters import COUNTERS, DeviceCounts


@dataclasses.dataclass(frozen=True)
class JaxDevices:
    """JAX devices of the process.

    Attributes:
        count: how many there are.
        platform: what they are: "cpu", "gpu", "tpu"; "none" before anything ran.
    """

    count: int
    platform: str


NO_DEVICES = JaxDevices(0, "none")


def stats_line(counts: DeviceCounts, devices: JaxDevices) -> str:
    """Formats the line that `--stats` prints.

    Example:
        >>> stats_line(DeviceCounts(programs=2, executions=1, steps=40, replicas=4), JaxDevices(1, "cpu"))
        'ipu_tf: 2 programs compiled, 1 execution, 40 steps, 4 replicas on 1 device (cpu)'
    """
    loaded = f"{counts.loads} loaded, " if counts.loads else ""
    return (
        f"ipu_tf: {_count(counts.programs, 'program')} compiled, {loaded}{_count(counts.executions, 'execution')}, "
        f"{_count(counts.steps, 'step')}, {_count(counts.replicas, 'replica')} "
        f"on {_count(devices.count, 'device')} ({devices.platform})"
    )


class StatsReport:
    """Prints the line when the interpreter ends.

    Made before the script runs: functions registered with `atexit` run in reverse order, so that the line
    comes after everything the script itself leaves for the end.
    """

    def __init__(self) -> None:
        self._devices = NO_DEVICES
        atexit.register(self._print)

    def note_devices(self) -> None:
        """Records JAX's devices before JAX closes its backends at the end of the process."""
        counts = COUNTERS.read()
        if counts.programs or counts.executions:
            import jax

            devices = jax.devices()
            self._devices = JaxDevices(len(devices), devices[0].platform)

    def _print(self) -> None:
        # A script may have put something of its own in the place of sys.stdout, or closed it.
        line = stats_line(COUNTERS.read(), self._devices)
        try:
            if sys.stdout is not None and not getattr(sys.stdout, "closed", False):
                sys.stdout.flush()
            print(line, file=sys.__stdout__, flush=True)
        except (OSError, ValueError):  # a pipe whose reader has gone, or a closed file
            print(line, file=sys.__stderr__)
            _forget_output()


def _forget_output() -> None:
    """Redirects a standard output that cannot be written to `os.devnull`, as Python would flush it again."""
    with contextlib.suppress(OSError, ValueError):
        assert sys.__stdout__ is not None
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.__stdout__.fileno())
        os.close(nowhere)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
