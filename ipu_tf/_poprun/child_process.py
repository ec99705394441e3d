"""Starts the process of an instance; tags the lines of its output."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import IO, NamedTuple

_SET_PARENT_DEATH_SIGNAL = 1
_LIBRARY = ctypes.CDLL(None)


class Command(NamedTuple):
    """Command of one instance.

    Attributes:
        arguments: the program and its arguments.
        environment: all its variables.
        shown: whether its output is shown.
    """

    arguments: Sequence[str]
    environment: dict[str, str]
    shown: bool = True


class OutputStream:
    """Output of one process, of which whole lines are written with a prefix.

    Args:
        source: the process's end of it.
        prefix: what each line gets.
        target: where lines go; None to drop them.
    """

    def __init__(self, source: IO[bytes], prefix: str, target: IO[bytes] | None) -> None:
        self.source, self._prefix, self._target = source, prefix.encode(), target
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
        if self._target is None or not lines:
            return
        self._target.write(b"".join(self._prefix + line + b"\n" for line in lines))
        self._target.flush()


def start(command: Command, reads_input: bool) -> subprocess.Popen[bytes]:
    """Starts a process with pipes for its output, in a process group of its own.

    Args:
        command: what to start.
        reads_input: whether it reads the standard input of this process; else its own is empty.

    Raises:
        OSError: if the program cannot be started.
    """
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
