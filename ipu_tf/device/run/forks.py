"""Detects use of the device after `os.fork`: a forked process lacks JAX's threads, and would hang."""

from __future__ import annotations

import os
import sys

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.errors import DeviceError


class ForkedProcess(DeviceError):
    """Raised if the device is used in a process that was forked after JAX had started its threads.

    Args:
        process: the id of the process.
        parent: that of the one it was forked from.
    """

    def __init__(self, process: int, parent: int) -> None:
        super().__init__(
            "The emulated IPU needs threads of JAX and TensorFlow that a forked process does not have; it would hang. "
            'Start the process with multiprocessing.get_context("spawn") (or "forkserver"), or fork before a device is '
            f"configured or JAX is used. Received: process {process}, forked from process {parent}, where JAX had "
            "started."
        )


_parent: ProcessValue[int | None] = register_state(
    "process it was forked from", ProcessValue(None), kept="a fork stays one"
)
"""The process this one was forked from, if JAX had started there."""


def check_not_forked() -> None:
    """Checks that the process was not forked after JAX had started.

    Raises:
        ForkedProcess: in a process that was forked after JAX had started.
    """
    if _parent.value is not None:
        raise ForkedProcess(os.getpid(), _parent.value)


def _note_fork() -> None:
    if _parent.value is None and "jax" in sys.modules:
        from ipu_tf.device.feeds.jax_effects import backends_started  # importing ipu_tf alone does not import JAX

        _parent.value = os.getppid() if backends_started() else None


os.register_at_fork(after_in_child=_note_fork)
