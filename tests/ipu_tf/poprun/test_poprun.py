"""`poprun`: options, the environment of instances, their output, signals, and one end for all of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ipu_tf import _poprun
from ipu_tf._poprun import command_line
from ipu_tf._poprun.arguments import UsageError, parse, usage
from ipu_tf._poprun.command_line import main
from ipu_tf._poprun.hosts import hosts_in_file, hosts_of
from ipu_tf._poprun.instances import instances, variables
from ipu_tf._poprun.options import OPTIONS, Option, boolean
from tests.helpers.subprocess_cases import ROOT

POPRUN = [sys.executable, "-c", "from ipu_tf._poprun.command_line import main; main()"]
#: Prints its place, then does what its argument says.
PROGRAM = """\
import os, signal, subprocess, sys, time
index = os.environ["POPDIST_INSTANCE_INDEX"]
print(f"place {index} of {os.environ['OMPI_COMM_WORLD_SIZE']}", flush=True)
print("a warning", file=sys.stderr, flush=True)
what, of = (sys.argv[1:] + ["", ""])[:2]
if what == "stubborn":
    print("group", os.getpid(), flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if index == "0":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
if what == "child":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(5)"])
    print("accuracy 0.98", end="", flush=True)
    sys.exit(0)
if what == "hangup":
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(7))
    print("ready", os.getpid(), flush=True)
if what == "save":
    def save(number, frame):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(0.6 * int(index))
        print("saved", flush=True)
        sys.exit(75)
    signal.signal(signal.SIGTERM, save)
    print("ready", flush=True)
if what in ("stubborn", "kill"):
    time.sleep(0.2)
    if index == "1":
        os.kill(os.getpid(), 9)
if what == "exit" and index == of:
    sys.exit(3)
if what == "read":
    print("given", sys.stdin.read())
elif what == "variable":
    print(of, os.environ.get(of))
elif what:
    time.sleep(60)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def poprun(*arguments: str, given: str = "", **surroundings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*POPRUN, *arguments],
        cwd=ROOT,
        env={**os.environ, **surroundings},
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def lines(text: str) -> list[str]:
    return sorted(text.splitlines())


def test_instances_know_their_place_and_their_output_is_tagged(program: str) -> None:
    done = poprun(
        "--num-instances=2", "--num-replicas", "4", "--mpi-global-args", "--tag-output", sys.executable, program
    )
    assert done.returncode == 0
    assert lines(done.stdout) == ["[1,0]<stdout>:place 0 of 2", "[1,1]<stdout>:place 1 of 2"]
    assert lines(done.stderr) == ["[1,0]<stderr>:a warning", "[1,1]<stderr>:a warning"]


def test_the_last_line_of_an_instance_whose_child_goes_on(program: str) -> None:
    done = poprun(sys.executable, program, "child")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[1,0]<stdout>:accuracy 0.98"


def test_arguments_for_mpirun_with_an_open_quote(program: str) -> None:
    done = poprun("--mpi-global-args", "-x NAME='a", sys.executable, program)
    assert done.returncode == 2 and "--mpi-global-args: No closing quotation" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_instance_alone_reads_what_is_typed_and_one_alone_is_shown(program: str) -> None:
    given = ("--num-instances", "2", "--num-replicas", "2", "--only-output-from-instance", "0")
    done = poprun(*given, sys.executable, program, "read", given="typed")
    assert done.stdout.splitlines() == ["[1,0]<stdout>:place 0 of 2", "[1,0]<stdout>:given typed"]


def test_variables_of_an_instance() -> None:
    both = instances(4, 8, ("a", "b"))
    assert [(each.host, each.local_index) for each in both] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert variables(both[3], both, 2, "a:1234") == {
        "JAX_COORDINATOR_ADDRESS": "a:1234",
        "POPDIST_NUM_INSTANCES": "4",
        "POPDIST_INSTANCE_INDEX": "3",
        "POPDIST_LOCAL_INSTANCE_INDEX": "1",
        "POPDIST_NUM_TOTAL_REPLICAS": "8",
        "POPDIST_NUM_LOCAL_REPLICAS": "2",
        "POPDIST_NUM_IPUS_PER_REPLICA": "2",
        "POPDIST_REPLICA_INDEX_OFFSET": "6",
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    }


def test_instances_of_a_host_that_is_named_twice_are_counted_together() -> None:
    found = instances(6, 6, ("a", "localhost", "a", "127.0.0.1", "b", socket.gethostname()))
    assert [(each.local_index, each.local_count) for each in found] == [(0, 2), (0, 3), (1, 2), (1, 3), (0, 1), (2, 3)]


@pytest.mark.parametrize(("lines", "hosts"), [
    ("a slots=2\n# none\nb slots=2  # two\n", ("a", "b")), ("a\nb slots=1\na\n", ("a", "b", "a")),
    ("a\nb slots=2\n", None), ("a slots=3\nb slots=1\n", None)])  # fmt: skip
def test_a_file_of_hosts(lines: str, hosts: tuple[str, ...] | None, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(lines)
    if hosts is not None:
        assert hosts_in_file(str(tmp_path / "hosts")) == hosts
        return
    with pytest.raises(ValueError, match="as many slots for each host.*Received: slots=1, slots="):
        hosts_in_file(str(tmp_path / "hosts"))


@pytest.mark.parametrize(("what", "code", "said"), [
    (("kill",), 137, "instance 1 was ended by signal 9 (SIGKILL); ending instance 0."),
    (("exit", "0"), 3, "instance 0 failed with exit code 3; ending instance 1."),
])  # fmt: skip
def test_an_instance_that_fails_ends_the_others(program: str, what: tuple[str, ...], code: int, said: str) -> None:
    done = poprun("--num-instances", "2", "--num-replicas", "2", sys.executable, program, *what)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "poprun" in line]) == (
        code,
        [f"poprun: {said}"],
    )


def test_instances_that_do_not_end_are_killed_with_their_children(program: str) -> None:
    impatient = "from ipu_tf._poprun import processes; processes.GRACE = 0.4; "
    done = subprocess.run(
        [sys.executable, "-c", impatient + POPRUN[-1], "--num-instances", "2", "--num-replicas", "2"]
        + [sys.executable, program, "stubborn"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 137
    assert "poprun: instances 0 did not end in 0 s: killed." in done.stderr
    started = [int(line.split()[-1]) for line in done.stdout.splitlines() if ">:group" in line]
    deadline = time.monotonic() + 10
    while any(group_lives(group) for group in started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(started) == 2
    assert not any(group_lives(group) for group in started)


def group_lives(group: int) -> bool:
    """Whether a process group has a process that runs: ended ones that nobody waited for do not count."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state != "Z":
            return True
    return False


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGHUP, 7), (signal.SIGKILL, -9)])
def test_signals_are_passed_on_and_nothing_outlives_poprun(program: str, number: signal.Signals, ends: int) -> None:
    arguments = [*POPRUN, "--num-instances", "2", "--num-replicas", "2", sys.executable, program, "hangup"]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        ready: list[int] = []
        while len(ready) < 2:
            line = running.stdout.readline()
            assert line, "an instance ended early"
            if "ready" in line:
                ready.append(int(line.split()[-1]))
        running.send_signal(number)
        assert running.wait(30) == ends
    deadline = time.monotonic() + 10
    while any(group_lives(group) for group in ready) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(group_lives(group) for group in ready)


#: Knows the host `alias` by the name `far0`; does not reach `none`. Passes no signal on, as the real one.
SSH = f"""\
#!{sys.executable}
import os, subprocess, sys
host, command = sys.argv[-2:]
if "-G" in sys.argv:
    print("user me", "hostname " + command.replace("alias", "far0"), sep=os.linesep)
elif host == "none":
    sys.exit(255)
else:
    print("to", host, flush=True)
    sys.exit(subprocess.run(["setsid", "--wait", "sh", "-c", command]).returncode)
"""


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """Variables with which `ssh` starts commands on this machine."""
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def test_a_host_is_reached_by_ssh(program: str, surroundings: dict[str, str]) -> None:
    done = poprun(
        "--host", "alias,far1", "--num-instances", "2", "--num-replicas", "2", "--print-topology", "-vv",
        "--mpi-local-args", "-x GIVEN=a --bind-to none", sys.executable, program, "variable", "GIVEN", **surroundings,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line for line in lines(done.stdout) if line.startswith("[")] == [
        "[1,0]<stdout>:GIVEN a", "[1,0]<stdout>:place 0 of 2", "[1,0]<stdout>:to alias",
        "[1,1]<stdout>:GIVEN a", "[1,1]<stdout>:place 1 of 2", "[1,1]<stdout>:to far1",
    ]  # fmt: skip
    assert "arguments for mpirun without effect, as no mpirun is used: --bind-to none" in done.stderr
    assert "JAX_COORDINATOR_ADDRESS=far0:" in done.stderr


@pytest.mark.parametrize("host", ["localhost", "far0", "localhost,far1"])
def test_the_first_sigterm_comes_to_every_instance_once(host: str, program: str, surroundings: dict[str, str]) -> None:
    """One takes longer to save its state than the other."""
    arguments = [
        *POPRUN,
        "--host",
        host,
        "--num-instances",
        "2",
        "--num-replicas",
        "2",
        sys.executable,
        program,
        "save",
    ]
    environment = {**os.environ, **surroundings}
    with subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        told = ""
        while told.count("ready") < 2:
            told += running.stdout.readline() or pytest.fail(f"an instance ended early: {told}")
        running.send_signal(signal.SIGTERM)
        rest = running.communicate(timeout=30)[0]
    saved = sorted(line for line in rest.splitlines() if "saved" in line)
    assert (running.returncode, saved) == (75, ["[1,0]<stdout>:saved", "[1,1]<stdout>:saved"])


def test_a_host_that_is_not_reached_is_named(surroundings: dict[str, str]) -> None:
    done = poprun("--host", "none", "true", **surroundings)
    assert done.returncode == 255
    assert "poprun: instance 0 could not be started on none: ssh ended with exit code 255" in done.stderr


def test_hosts() -> None:
    assert hosts_of("a,b[0-2,4].x,c[08-10]") == ("a", "b0.x", "b1.x", "b2.x", "b4.x", "c08", "c09", "c10")
    for wrong in ("", "a[", "a[2-1]", "a[x]", "a,,b", "-oProxyCommand=x", "a[1-]"):
        with pytest.raises(ValueError, match="Received"):
            hosts_of(wrong)


def test_the_executable_cache_reaches_the_programs(program: str) -> None:
    done = poprun("--executable-cache-path", "/tmp/cache", sys.executable, program, "variable", "TF_POPLAR_FLAGS")
    assert "TF_POPLAR_FLAGS --executable_cache_path=/tmp/cache" in done.stdout.replace("None", "")


def test_options_travel_through_a_file(tmp_path: Path, program: str) -> None:
    file = str(tmp_path / "config.json")
    saved = poprun("--num-replicas", "2", "--num-ilds", "1", "--export-config", file, sys.executable, program)
    assert saved.returncode == 0
    assert json.loads(Path(file).read_text()) == {"num-ilds": 1, "num-replicas": 2}
    settings = parse(["--import-config", file, "--num-replicas=4", "x"])
    assert (settings["num_replicas"], settings["num_ilds"]) == (4, 1)
    again = poprun("--export-config", file, "true")
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
    assert poprun("--export-config", file, "--overwrite-config=yes", "true").returncode == 0
    assert json.loads(Path(file).read_text()) == {}


@pytest.mark.parametrize(("given", "said"), [
    (["--num-instances", "2", "--num-replicas", "3", "x"], "multiple of --num-instances. Received: 3 replicas, 2"),
    (["--host", "a,b", "--num-instances", "3", "--num-replicas", "3", "x"], "multiple of the number of hosts"),
    (["--num-replicas", "0", "x"], "--num-replicas must be a whole number, 1 or more. Received: '0'"),
    (["--numa-aware=maybe", "x"], "--numa-aware must be yes, no, 1 or 0. Received: 'maybe'"),
    (["--offline-mode", "yes", "x"], "PRE_COMPILE"),
    (["--what", "x"], "there is no option --what"),
    (["--num-replicas"], "needs a value"),
    (["--num-replicas", "2"], "which program?"),
    (["--host", "a", "--hostfile", "b", "x"], "exclude each other"),
    (["--hostfile", "/none", "x"], "No such file"),
    (["--only-output-from-instance", "1", "x"], "there are instances 0 to 0. Received: 1"),
    (["--import-config", "/none", "x"], "--import-config"),
])  # fmt: skip
def test_wrong_command_lines(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(given)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_has_an_effect_or_says_why_not(
    option: Option, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert option.name in usage()
    if not option.no_effect:
        source = "".join(path.read_text() for path in Path(_poprun.__file__).parent.glob("*.py"))
        assert f'settings["{option.key}"]' in source or option.refused or option.key == "import_config"
        return
    monkeypatch.setattr(command_line.Processes, "run", lambda processes: 0)  # this process has threads, and starts none
    with pytest.raises(SystemExit, match="0"):
        main([f"{option.name}={'yes' if option.parse is boolean else '1'}", "true"])
    assert f"poprun: {option.name} has no effect: {option.no_effect}." in capfd.readouterr().err


@pytest.mark.parametrize(
    ("given", "code", "said"), [([], 0, "usage"), (["--version"], 0, "poprun"), (["/none"], 127, "cannot start")]
)
def test_help_version_and_a_program_that_is_not_there(given: list[str], code: int, said: str) -> None:
    done = poprun(*given)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True)


def test_a_line_that_was_not_ended_is_shown(tmp_path: Path) -> None:
    done = poprun(sys.executable, "-c", "print('no end', end='')")
    assert done.stdout == "[1,0]<stdout>:no end\n"


def test_a_file_of_options_there_are_not(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num-ipus": 2}')
    with pytest.raises(UsageError, match="must be a JSON object of poprun's options. Received: {'num-ipus': 2}"):
        parse(["--import-config", str(tmp_path / "config.json"), "x"])


def test_the_coordinator_can_listen_where_it_is_told(program: str) -> None:
    done = poprun(sys.executable, program, "variable", "JAX_COORDINATOR_ADDRESS")
    host, _, port = done.stdout.split()[-1].rpartition(":")
    with socket.socket() as listener:
        listener.bind((host, int(port)))
