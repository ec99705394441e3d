"""Starts the process of an instance, here or on another machine, and sends it signals."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from ipu_tf._poprun.ssh import There, process_of, send_signal

_SET_PARENT_DEATH_SIGNAL = 1
_LIBRARY = ctypes.CDLL(None)


class Command(NamedTuple):
    """Command of one instance.

    Attributes:
        arguments: the program and its arguments.
        environment: all its variables.
        shown: whether its output is shown.
        host: the other machine on which it starts the instance, by `ssh`; None for this one.
    """

    arguments: Sequence[str]
    environment: dict[str, str]
    shown: bool = True
    host: str | None = None


class ChildProcess:
    """Process of an instance, here or by `ssh` on another machine, in a process group of its own.

    Args:
        command: what to start.
        reads_input: whether it reads the standard input of this process; else its own is empty.

    Attributes:
        process: the one here: the program's, or that of `ssh`.

    Raises:
        OSError: if the program cannot be started.
    """

    def __init__(self, command: Command, reads_input: bool) -> None:
        self.process = _start(command, reads_input)
        self._host = command.host
        self._there: There | None = None
        self._waiting: list[signal.Signals] = []
        self._sending: list[subprocess.Popen[bytes]] = []

    @property
    def unreached(self) -> str | None:
        """Returns the other machine, if nothing was started there; else None."""
        return self._host if self._there is None else None

    def is_its_own(self, line: bytes) -> bool:
        """Returns whether a line of output is the program's; of another machine one says the process there."""
        if self._host is None or self._there is not None:
            return True
        self._there = process_of(line)
        if self._there is not None:
            waiting, self._waiting = self._waiting, []
            for number in waiting:
                self.send(number)
        return self._there is None

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the program and its children; on another machine as soon as it runs there."""
        if self._host is None:
            self.send_here(number)
        elif self._there is None:
            self._waiting.append(number)
        else:
            self._sending.append(send_signal(self._host, self._there, number))

    def end(self, number: signal.Signals) -> None:
        """Sends a signal that ends the program; one that is not reached yet is not waited for."""
        if self.unreached is None:
            self.send(number)
        else:
            self.send_here(number)

    def send_here(self, number: signal.Signals) -> None:
        """Sends a signal to the processes of this machine."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def wait_for_signals(self, seconds: float) -> None:
        """Waits until signals have come to another machine, at most so long."""
        for sending in self._sending:
            with contextlib.suppress(subprocess.TimeoutExpired):
                sending.wait(seconds)


def _start(command: Command, reads_input: bool) -> subprocess.Popen[bytes]:
    """Starts a process with pipes for its output, in a process group of its own."""
    return subprocess.Popen(
        command.arguments,
        env=command.environment,
        stdin=None if reads_input else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a terminal's Ctrl-C comes to `poprun` alone, and is passed on once
        preexec_fn=_die_with_parent,
    )


def _die_with_parent() -> None:
    """Asks Linux for SIGKILL when the parent process ends, however it does."""
    if hasattr(_LIBRARY, "prctl"):
        _LIBRARY.prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
