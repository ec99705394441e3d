"""Runs the processes of the instances: output with prefixes, signals, and one end for all.

    instance 0 ─ stdout ─┐                       [1,0]<stdout>:a line
    instance 1 ─ stderr ─┴─► selector ─► lines ─► [1,1]<stderr>:another

The first instance that fails ends the others: SIGTERM, and SIGKILL to those that are there after some seconds. So does
output that cannot be written any more.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from ipu_tf._poprun.child_process import ChildProcess, Command
from ipu_tf._poprun.output import OutputStream, say
from ipu_tf._poprun.signals import Signals

GRACE = 10.0
"""Seconds that an instance has to end after SIGTERM, before SIGKILL."""
_KILLED_THERE = 5.0
"""Seconds for which SIGKILL may take to come to another machine, before the connection is closed."""
_POLL = 0.1
_OUTPUT_AFTER_END = 1.0
"""Seconds for which output is read after all instances ended: a process of theirs may hold the pipe open."""


class Processes:
    """The instances' processes, from their start to their end.

    Args:
        commands: one for each instance.
    """

    def __init__(self, commands: Sequence[Command]) -> None:
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, ChildProcess] = {}
        self._started: list[ChildProcess] = []
        self._failed: int | None = None
        self._kill_at: float | None = None
        self._told_to_end = False
        self._signals = Signals()
        self._commands = commands

    def run(self) -> int:
        """Runs them to their end; returns the exit code: that of the first instance that failed, else 0.

        Raises:
            OSError: if the program cannot be started.
        """
        with self._signals.noted():
            try:
                for index, command in enumerate(self._commands):
                    self._start(index, command)
                while self._running:
                    self._pass_signals_on()
                    self._read(_POLL)
                    self._note_ended()
                    self._kill_late()
            finally:
                if self._running or self._failed is not None:
                    self._kill_all()
                for each in self._running.values():
                    each.process.wait()
            self._drain()
        return self._failed or 0

    def _start(self, index: int, command: Command) -> None:
        child = self._running[index] = ChildProcess(command, reads_input=index == 0)
        self._started.append(child)
        for name in ("stdout", "stderr"):
            target = getattr(sys, name).buffer if command.shown else None
            source, prefix = getattr(child.process, name), f"[1,{index}]<{name}>:"
            stream = OutputStream(source, prefix, target, child.is_its_own, self._note_lost)
            self._selector.register(stream.source, selectors.EVENT_READ, stream)
        self._watch_end(child.process)

    def _watch_end(self, process: subprocess.Popen[bytes]) -> None:
        """Has the selector return when a process ends: of two that end shortly after each other, the first counts."""
        with contextlib.suppress(AttributeError, OSError):  # before Linux 5.3 the ends are seen `_POLL` seconds late
            self._selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ)

    def _read(self, seconds: float) -> None:
        """Waits at most so long for output or the end of a process, and writes what there is."""
        for key, _ in self._selector.select(seconds):
            stream: OutputStream | None = key.data
            if stream is None:  # a process ended
                self._selector.unregister(key.fileobj)
                os.close(key.fd)
            elif not stream.read():
                self._selector.unregister(stream.source)
                stream.source.close()

    def _drain(self) -> None:
        """Reads what ended processes left."""
        until = time.monotonic() + _OUTPUT_AFTER_END
        while self._selector.get_map() and time.monotonic() < until:
            self._read(_POLL)
        for key in self._selector.get_map().values():  # another process holds the pipe, and may not end
            if key.data is not None:
                key.data.finish()

    def _note_ended(self) -> None:
        """Notes which processes ended; the first that failed ends the others."""
        for index, child in list(self._running.items()):
            status = child.process.poll()
            if status is None:
                continue
            del self._running[index]
            if status and self._failed is None:
                self._failed = status if status > 0 else 128 - status
                say(f"instance {index} {_ended(status, child)}{self._others()}.")
                self._end_all()

    def _note_lost(self, error: OSError) -> None:
        """Ends the instances if their output cannot be written; those that were told to end may take their time."""
        self._pass_signals_on()  # a terminal that is closed sends SIGHUP
        if self._failed is None and not self._told_to_end:
            self._failed = 1
            say(f"output cannot be written: {error}{self._others()}.")
            self._end_all()

    def _others(self) -> str:
        left = sorted(self._running)
        return f"; ending instance{'s' if len(left) > 1 else ''} {', '.join(map(str, left))}" if left else ""

    def _end_all(self) -> None:
        if not self._told_to_end:  # a second SIGTERM would end those that save their state because of the first
            self._told_to_end = True
            for child in self._running.values():
                child.end(signal.SIGTERM)
        self._kill_at = time.monotonic() + GRACE

    def _kill_late(self) -> None:
        if self._kill_at is not None and time.monotonic() > self._kill_at and self._running:
            say(f"instances {', '.join(map(str, sorted(self._running)))} did not end in {GRACE:.0f} s: killed.")
            self._kill_all()
            self._kill_at = None

    def _pass_signals_on(self) -> None:
        """Passes on the signals that came, since the start too; a second request to end kills the instances."""
        for number, second in self._signals.take():
            if second:
                names = ", ".join(map(str, sorted(self._running)))
                say(f"a second {number.name}: instances {names} are killed.")
                self._kill_all()
            else:
                self._pass_on(number)

    def _pass_on(self, number: signal.Signals) -> None:
        self._told_to_end = self._told_to_end or number in (signal.SIGTERM, signal.SIGHUP)
        for child in self._running.values():
            child.send(number)

    def _kill_all(self) -> None:
        """Kills the instances, and processes that those which ended left behind."""
        for child in self._started:
            child.end(signal.SIGKILL)
        for child in self._started:
            child.wait_for_signals(_KILLED_THERE)
            child.send_here(signal.SIGKILL)


def _ended(status: int, child: ChildProcess) -> str:
    if child.unreached is not None:
        return f"could not be started on {child.unreached}: ssh ended with exit code {status}, its message is above"
    if status > 0:
        return f"failed with exit code {status}"
    return f"was ended by signal {-status} ({signal.Signals(-status).name})"
