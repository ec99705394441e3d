"""Output of instances: lines with a prefix, and what happens where they cannot be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import IO


class OutputStream:
    """Output of one process, of which whole lines are written with a prefix.

    Args:
        source: the process's end of it.
        prefix: what each line gets.
        target: where lines go; None to drop them.
        on_line: called with each line; returns whether it is the program's.
        on_lost: called with the error if lines cannot be written: a terminal or pipe was closed, a disk is full.
    """

    def __init__(
        self,
        source: IO[bytes],
        prefix: str,
        target: IO[bytes] | None,
        on_line: Callable[[bytes], bool] = lambda line: True,
        on_lost: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self.source, self._prefix, self._target, self._on_line = source, prefix.encode(), target, on_line
        self._on_lost = on_lost
        self._rest = b""

    def read(self) -> bool:
        """Writes the lines that are there; returns whether more may come."""
        found = os.read(self.source.fileno(), 65536)
        *lines, self._rest = (self._rest + found).split(b"\n")
        self._write(lines)
        if not found:
            self.finish()
        return bool(found)

    def finish(self) -> None:
        """Writes a line that has no end."""
        if self._rest:
            self._write([self._rest])
            self._rest = b""

    def _write(self, lines: Sequence[bytes]) -> None:
        lines = list(filter(self._on_line, lines))
        if self._target is None or not lines:
            return
        try:
            self._target.write(b"".join(self._prefix + line + b"\n" for line in lines))
            self._target.flush()
        except OSError as error:
            _to_nowhere(self._target)
            self._on_lost(error)


def say(text: str) -> None:
    """Prints a line of `poprun`'s own, to the standard error; nothing where that is closed."""
    try:
        print(f"poprun: {text}", file=sys.stderr, flush=True)
    except OSError:
        _to_nowhere(sys.stderr)


def _to_nowhere(stream: IO[bytes] | IO[str]) -> None:
    """Has a stream be written to nowhere from now on, with what it still holds: Python would fail at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
