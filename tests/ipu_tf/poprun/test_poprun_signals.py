"""`poprun` and signals: kept until instances run, a second request, closed terminals and pipes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.subprocess_cases import ROOT

MAIN = "from ipu_tf._poprun.command_line import main; main()"
TWO = ("--num-instances", "2", "--num-replicas", "2")
#: Says that it is ready, then waits for signals as its argument says.
PROGRAM = """\
import os, signal, subprocess, sys, time
from pathlib import Path
what, folder = sys.argv[1], Path(sys.argv[2])
if what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
if what == "save":
    def save(number, frame):
        signal.signal(number, signal.SIG_DFL)
        print("saves", flush=True)
        time.sleep(1)
        (folder / ("saved " + os.environ["POPDIST_INSTANCE_INDEX"])).touch()
        sys.exit(75)
    signal.signal(signal.SIGTERM, save)
    signal.signal(signal.SIGHUP, save)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("ready", os.getpid(), flush=True)
while what == "speak":
    print("a line", flush=True)
time.sleep(60)
"""


@pytest.fixture
def program(tmp_path: Path) -> tuple[str, str]:
    """A program's path, and the folder that it writes to."""
    (tmp_path / "program.py").write_text(PROGRAM)
    return str(tmp_path / "program.py"), str(tmp_path)


def arguments(program: tuple[str, str], what: str, *options: str, before: str = "") -> list[str]:
    path, folder = program
    return [sys.executable, "-c", f"{before}\n{MAIN}", *options, *TWO, sys.executable, path, what, folder]


@contextlib.contextmanager
def started(command: list[str], **surroundings: str) -> Iterator[subprocess.Popen[str]]:
    """A process with pipes, which is killed at the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **surroundings}, stdout=pipe, stderr=pipe, text=True
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def ready(running: subprocess.Popen[str]) -> list[int]:
    """Waits until both instances run; returns their process groups."""
    assert running.stdout is not None
    groups: list[int] = []
    while len(groups) < 2:
        line = running.stdout.readline()
        assert line, "an instance ended early"
        groups += [int(line.split()[-1])] if "ready" in line else []
    return groups


def none_left(groups: list[int]) -> bool:
    """Whether the processes of these groups end within seconds."""
    until = time.monotonic() + 10
    while any(map(lives, groups)):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def lives(group: int) -> bool:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
            if int(of) == group and state != "Z":
                return True
    return False


def test_a_signal_during_the_start_comes_to_all_instances(program: tuple[str, str]) -> None:
    early = (
        "import os, signal; from ipu_tf._poprun import processes; Processes = processes.Processes\n"
        "start = Processes._start\n"
        "def _start(self, index, command):\n"
        "    start(self, index, command)\n"
        "    if index == 0: os.kill(os.getpid(), signal.SIGTERM)\n"
        "Processes._start = _start"
    )
    with started(arguments(program, "wait", before=early)) as running:
        said = running.communicate(timeout=30)[1]
    assert running.returncode == 143
    assert "killed" not in said


def test_a_signal_waits_for_an_instance_that_ssh_is_about_to_start(program: tuple[str, str], tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    wait = 'echo connecting; sleep 0.5; for command do :; done; exec setsid --wait sh -c "$command"'
    ssh.write_text(f'#!/bin/sh\ncase "$1" in -G) echo hostname 127.0.0.1;; *) {wait};; esac\n')
    ssh.chmod(0o755)
    command = arguments(program, "wait", "--host", "far0")
    with started(command, PATH=f"{tmp_path}:{os.environ['PATH']}") as running:
        assert running.stdout is not None and "connecting" in running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        said = running.communicate(timeout=30)[1]
    assert (running.returncode, "could not be started" in said) == (143, False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_request_ends_instances_at_once(program: tuple[str, str], number: signal.Signals) -> None:
    with started(arguments(program, "deaf")) as running:
        groups = ready(running)
        running.send_signal(number)
        time.sleep(0.8)
        assert running.poll() is None and all(map(lives, groups))
        running.send_signal(number)
        said = running.communicate(timeout=9)[1]
    assert (running.returncode, none_left(groups)) == (137, True)
    assert f"poprun: a second {number.name}: instances 0, 1 are killed." in said


def test_two_requests_at_once_are_one(program: tuple[str, str], tmp_path: Path) -> None:
    """`timeout` sends SIGTERM to a process and to its group."""
    with started(arguments(program, "save")) as running:
        ready(running)
        running.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
    assert running.returncode == 75
    assert sorted(path.name for path in tmp_path.glob("saved*")) == ["saved 0", "saved 1"]


def test_a_terminal_that_is_closed_leaves_nothing_and_instances_may_save(
    program: tuple[str, str], tmp_path: Path
) -> None:
    terminal, end = os.openpty()
    own = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    with subprocess.Popen(
        arguments(program, "save", before=own),
        cwd=ROOT, stdin=end, stdout=end, stderr=end, start_new_session=True,
    ) as running:  # fmt: skip
        os.close(end)
        told = b""
        while told.count(b"\n") < 2:
            told += os.read(terminal, 1000)
        groups = [int(line.split()[-1]) for line in told.splitlines()]
        os.close(terminal)
        assert running.wait(30) == 75
    assert none_left(groups)
    assert sorted(path.name for path in tmp_path.glob("saved*")) == ["saved 0", "saved 1"]


def test_hangups_that_are_ignored_stay_so(program: tuple[str, str]) -> None:
    with started(["nohup", *arguments(program, "wait")]) as running:
        groups = ready(running)
        running.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert running.poll() is None and all(map(lives, groups))
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
    assert (running.returncode, none_left(groups)) == (143, True)


def test_output_that_nobody_reads_ends_the_instances(program: tuple[str, str]) -> None:
    with started(arguments(program, "speak")) as running:
        groups = ready(running)
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        said = running.stderr.read()
        assert running.wait(30) == 1
    assert none_left(groups)
    assert "poprun: output cannot be written: [Errno 32] Broken pipe; ending instances 0, 1." in said
