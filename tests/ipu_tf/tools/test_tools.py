"""`gc-info`, `gc-monitor` and relatives in Graphcore's forms, over the ids of `select_ipus` and real processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ipu_tf as ipu
from ipu_tf import gcipuinfo
from ipu_tf._config import attachments
from ipu_tf._config.devices import multi_ipu_sizes
from ipu_tf._config.state import configured_devices
from ipu_tf.emulation import EmulationError
from ipu_tf.tools import commands, traffic

HOLDER = """\
import sys
import ipu_tf as ipu
config = ipu.config.IPUConfig()
config.select_ipus = [1, 6]
config.configure_ipu_system()
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Four IPUs, and a folder for processes of this test alone."""
    ipu.config.reset_ipu_configuration()
    monkeypatch.setenv("TF_IPU_COUNT", "4")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield tmp_path / "ipu_tf"
    ipu.config.reset_ipu_configuration()


def said(tool: Callable[..., None], *arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a tool prints."""
    tool(list(arguments))
    return capsys.readouterr().out


def configure(ids: list[int]) -> tuple[int, ...]:
    """Configures devices of these ids; returns how many IPUs each has."""
    config = ipu.config.IPUConfig()
    config.select_ipus = ids
    config.configure_ipu_system()
    return tuple(device.num_ipus for device in configured_devices())


def test_every_id_of_the_listing_can_be_selected(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(commands.info, "-l", capsys=capsys)
    assert text.startswith("Graphcore device listing:\nPartition: ")
    heads = re.findall(r"^-\+- Id: \[(\d+)\], target: \[(.*?)\]", text, re.MULTILINE)
    assert [int(index) for index, _ in heads] == list(range(len(multi_ipu_sizes(4))))
    groups = [len(re.findall(r"\|---", block)) for block in text.split("-+- ")[1:]]
    sizes = configure([int(index) for index, _ in heads])
    assert sizes == tuple(max(group, 1) for group in groups) == multi_ipu_sizes(4)
    assert [target for _, target in heads] == ["Emulated"] * 4 + ["Multi IPU"] * 3
    assert "|--- Id: [3], DNC Id: [1]" in text.split("Id: [5], target")[1].split("-+-")[0]


def test_attributes_of_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(commands.info, "-d", "0", "-i", capsys=capsys)
    assert text.startswith("Device Info:\n  id: 0\n") and "remote buffers supported: 1" in text
    assert "clock: N/A" in text and "ipu power: N/A" in text and "average die temp: N/A" in text
    assert said(commands.info, "-d", "5", "-i", capsys=capsys).count("Device Info:") == 2
    assert [said(commands.info, *a, capsys=capsys) for a in (["--ipu-count"], ["-d", "4", "--ipu-count"])] == [
        "4\n",
        "2\n",
    ]
    assert said(commands.info, "--tile-clock-speed", capsys=capsys) == "N/A\n"


def test_the_inventory_is_read_as_graphcores_examples_do(capsys: pytest.CaptureFixture[str]) -> None:
    devices = json.loads(said(commands.inventory, "-j", capsys=capsys))["devices"]
    assert [device["id"] for device in devices] == ["0", "1", "2", "3"]
    assert all(int(device["remote buffers"]) for device in devices)
    assert said(commands.inventory, capsys=capsys).count("Device Info:") == 4


def test_a_process_is_attached_as_long_as_it_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", HOLDER]
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as held:
        assert held.stdout is not None and held.stdout.readline() == "ready\n"
        table = said(commands.monitor, "--no-card-info", capsys=capsys)
        devices = gcipuinfo.gcipuinfo().getDevices()
        held.kill()
        held.wait()
    assert "Attached processes" in table and re.search(r"PID *\| *Command *\| *Time *\| *User *\| *ID", table)
    rows = [[entry.strip() for entry in line.split("|")[1:-1]] for line in table.splitlines() if str(held.pid) in line]
    assert [row[4] for row in rows] == ["1", "0", "2", "3"] and all(row[5:] == ["N/A"] * 3 for row in rows)
    assert [device.get("user process id") for device in devices] == [str(held.pid)] * 4
    # It was killed, so its file is there still.
    assert "No attached processes" in said(commands.monitor, "--no-card-info", capsys=capsys)
    assert "user process id" not in gcipuinfo.gcipuinfo().getDevices()[1]
    assert f"forgot process {held.pid}, which is gone" in said(commands.reset, "-d", "0", capsys=capsys)
    assert "there is nothing to reset" in said(commands.reset, "-d", "0", capsys=capsys)


def test_this_process_is_forgotten_when_its_system_is_reset(folder: Path) -> None:
    configure([2])
    [own] = attachments.attachments()
    assert (own.pid, own.ipus) == (os.getpid(), (2,))
    ipu.config.reset_ipu_configuration()
    assert attachments.attachments() == () and not list(folder.iterdir())


def test_another_process_of_the_same_number_is_another(folder: Path) -> None:
    configure([2])
    path = folder / f"{os.getpid()}.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "born": data["born"] + 1}))
    assert attachments.attachments() == ()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1}', '{"ipus": 3}'])
def test_files_of_others_are_left_out(text: str, folder: Path) -> None:
    configure([2])
    (folder / "1.json").write_text(text)
    assert [each.pid for each in attachments.attachments()] == [os.getpid()]


@pytest.mark.parametrize(
    "field",
    [{"pid": "1"}, {"pid": None}, {"born": "1"}, {"since": "now"}, {"command": 1}, {"user": None}, {"ipus": ["0"]}],
    ids=str,
)
def test_fields_of_other_types_are_left_out(
    field: dict[str, object], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure([2])
    own = json.loads((folder / f"{os.getpid()}.json").read_text())
    (folder / "1.json").write_text(json.dumps(own | {"ipus": [1]} | field))
    assert [each.ipus for each in attachments.attachments()] == [(2,)]
    assert said(commands.monitor, "--no-card-info", capsys=capsys).count(str(os.getpid())) == 1
    assert "there is nothing to reset" in said(commands.reset, "-d", "0", capsys=capsys)


def test_files_of_processes_that_were_killed_go_when_another_configures(folder: Path) -> None:
    configure([2])
    own = folder / f"{os.getpid()}.json"
    data = json.loads(own.read_text())
    (folder / "1.json").write_text(json.dumps({**data, "pid": 1, "born": data["born"] + 1}))
    (folder / "notes.json").write_text("not ours")
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, text=True
    ) as other:
        alive = folder / f"{other.pid}.json"
        alive.write_text(json.dumps({**data, "pid": other.pid, "born": attachments._born(other.pid)}))  # noqa: SLF001
        configure([1])
        assert sorted(folder.iterdir()) == sorted([own, alive, folder / "notes.json"])


def test_a_folder_that_cannot_be_used_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    assert configure([0]) == (1,)
    assert attachments.attachments() == ()


def test_attributes_for_monitors(capsys: pytest.CaptureFixture[str]) -> None:
    found = gcipuinfo.gcipuinfo()
    assert found.getNamedAttributeForAll(gcipuinfo.IpuPower) == ["N/A"] * 4
    configure([0])
    assert found.getNamedAttributeForDevice(0, "user process id") == "N/A"
    assert found.updateData() and found.getNamedAttributeForDevice(0, "user process id") == str(os.getpid())
    ipu.config.reset_ipu_configuration()
    assert found.getNamedAttributeForDevice(0, "user process id") == str(os.getpid())
    found.setUpdateMode(True)
    assert "user process id" not in found.getDevices()[0]
    assert json.loads(found.getDevicesAsJSON()) == found.getDevices()
    with pytest.raises(IndexError, match=r"There are IPUs 0 to 3. Received: 4."):
        found.getNamedAttributeForDevice(4, "clock")
    for asked in (lambda: found.checkHealthOfDevices, lambda: gcipuinfo.BoardType):
        with pytest.raises(EmulationError, match="is not emulated"):
            asked()


def test_traffic_of_the_host_is_measured_and_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "_BYTES", 1 << 16)
    found = json.loads(said(traffic.host_traffic, "-j", capsys=capsys))
    assert found["host to device GB/s"] > 0 and found["device to host GB/s"] > 0
    assert "measured on this machine" in found["note"] and "measured on" in said(traffic.host_traffic, capsys=capsys)


@pytest.mark.parametrize("tool", [traffic.host_traffic, traffic.ipu_traffic])
def test_traffic_of_a_device_that_is_not_there_is_refused(
    tool: Callable[[list[str]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        tool(["-d", "99"])
    assert ended.value.code == 2
    assert "there are devices 0 to 6; see gc-info -l. Received: 99" in capsys.readouterr().err


def test_traffic_between_ipus_needs_two_devices() -> None:
    with pytest.raises(SystemExit, match="gc-iputraffictest: all emulated IPUs are on one JAX device here"):
        traffic.ipu_traffic([])


def test_what_only_hardware_has_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/gc-powertest", "-d", "0"])
    with pytest.raises(SystemExit, match=r"^gc-powertest: it tests or sets up hardware, and the IPUs are emulated"):
        commands.refused()
    with pytest.raises(SystemExit, match=r"^0$"):
        commands.refused(["--help"])
    assert "gc-powertest" in (said := capsys.readouterr().out) and "Does nothing here: it tests" in said
    with pytest.raises(SystemExit, match="an emulated IPU has no tiles"):
        commands.info(["-d", "0", "--tile-overview"])
    with pytest.raises(SystemExit):
        commands.info(["-d", "9", "-i"])
    assert "there are devices 0 to 6; see gc-info -l. Received: 9" in capsys.readouterr().err
