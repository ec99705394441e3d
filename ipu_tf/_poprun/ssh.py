"""Runs an instance on another machine by `ssh`: its command, its signals, the name by which others reach it.

    poprun ─► ssh -tt host ─► sh: waits for the program, returns its exit code
       │                       └─► sh: says the process ids, becomes the program
       └────► ssh host kill -15 -<process id of the first>

`ssh` passes no signals on. So a line of the output says the process ids, and signals are sent by `kill`.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=30")
_PROCESS = re.compile(rb".*poprun: this is process (\d+) of group (\d+)\r?")


class There(NamedTuple):
    """The processes of an instance on another machine.

    Attributes:
        program: process id of the program.
        group: that of its process group, whose first process is the shell that waits for the program.
    """

    program: int
    group: int


def over_ssh(host: str, own: Mapping[str, str], program: Sequence[str], reads_input: bool) -> list[str]:
    """Returns the command that starts a program on another machine, in this folder, with these variables.

    The program ends with its connection: `-tt` gives it a terminal, which hangs up.

    Args:
        host: as `ssh` takes it.
        own: the variables.
        program: the program and its arguments.
        reads_input: whether it reads what comes over the connection; else its input is empty.
    """
    assignments = [f"{name}={value}" for name, value in own.items()]
    # The program's own process says that it runs: what comes before its handlers are set ends it, and nothing is lost.
    become = 'echo "poprun: this is process $$ of group $0"; exec "$@"'
    run = f"sh -c {shlex.quote(become)} $$ {shlex.join(['env', *assignments, *program])}"
    lines = (
        "trap : INT TERM USR1 USR2",  # those are the program's; the shell waits for it
        "stty -echo -onlcr",
        f"cd {shlex.quote(os.getcwd())} || exit 1",
        run + ("" if reads_input else " </dev/null"),
        "exit $?",
    )
    script = shlex.join(["exec", "sh", "-c", "\n".join(lines)])
    return ["ssh", "-tt", *_OPTIONS, "-o", "ServerAliveInterval=15", "--", host, script]


def process_of(line: bytes) -> There | None:
    """Returns the processes that a line of the output says; None for lines of the program.

    >>> process_of(b"poprun: this is process 12 of group 10"), process_of(b"this is process 12")
    (There(program=12, group=10), None)
    """
    match = _PROCESS.fullmatch(line)
    return None if match is None else There(int(match[1]), int(match[2]))


def send_signal(host: str, there: There, number: signal.Signals) -> subprocess.Popen[bytes]:
    """Sends a signal to an instance on another machine, and to its children; returns the command that does so.

    SIGHUP goes to the program alone: it would end the shell that waits for it, and with it the connection.
    """
    to = there.program if number == signal.SIGHUP else -there.group
    kill = f"kill -{int(number)} {to}"  # with `--` between them it is an error in dash
    nothing = subprocess.DEVNULL
    return subprocess.Popen(["ssh", *_OPTIONS, "--", host, kill], stdin=nothing, stdout=nothing, stderr=nothing)


def address_of(host: str) -> str:
    """Returns the name or address that a host has in the configuration of `ssh`; its own if it has none there."""
    try:
        told = subprocess.run(["ssh", "-G", "--", host], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return host
    found = re.search(r"^hostname (\S+)$", told.stdout, re.MULTILINE)
    return host if found is None else found[1]
