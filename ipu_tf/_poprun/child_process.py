"""Starts the process of an instance; tags the lines of its output."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

from ipu_tf._poprun.ssh import process_of, send_signal

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


class OutputStream:
    """Output of one process, of which whole lines are written with a prefix.

    Args:
        source: the process's end of it.
        prefix: what each line gets.
        target: where lines go; None to drop them.
        on_line: called with each line; returns whether it is the program's.
    """

    def __init__(
        self,
        source: IO[bytes],
        prefix: str,
        target: IO[bytes] | None,
        on_line: Callable[[bytes], bool] = lambda line: True,
    ) -> None:
        self.source, self._prefix, self._target, self._on_line = source, prefix.encode(), target, on_line
        self._rest = b""

    def read(self) -> bool:
        """Writes the lines that are there; returns whether more may come."""
        found = os.read(self.source.fileno(), 65536)
        *lines, self._rest = (self._rest + found).split(b"\n")
        self._write(lines)
        if not found and self._rest:
            self._write([self._rest])
            self._rest = b""
        return bool(found)

    def _write(self, lines: Sequence[bytes]) -> None:
        lines = list(filter(self._on_line, lines))
        if self._target is None or not lines:
            return
        self._target.write(b"".join(self._prefix + line + b"\n" for line in lines))
        self._target.flush()


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
        self._there: int | None = None
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
        return self._there is None

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the program and its children."""
        if self._host is not None and self._there is not None:
            self._sending.append(send_signal(self._host, self._there, number))
            return
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
