"""`PVTI_OPTIONS`, `libpvti` and `pva.openTrace`: what the host did, as files of a process; nothing while it is off."""

from __future__ import annotations

import ast
import itertools
import json
import math
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import libpvti as pvti
from ipu_tf import pva
from ipu_tf._pvti import session
from ipu_tf._pvti.pvti_file import read_pvti
from ipu_tf.device import timeline
from tests.helpers.device_counts import device_work

NAME = re.compile(r"[A-Z][a-z]{2}_[A-Z][a-z]{2}_\d\d_\d\d:\d\d:\d\d_\d{4}_GMT_(\d+)(_\d+)?\.pvti")
PHASES = {"X": {"ts", "dur", "cat"}, "i": {"ts", "s", "cat"}, "C": {"ts", "args"}, "M": {"args"}}
SCRIPT = """\
import numpy as np
import tensorflow as tf
import libpvti as pvti
from tensorflow.python import ipu
ipu.config.IPUConfig().configure_ipu_system()
channel = pvti.createTraceChannel("MNIST Application")
with ipu.ipu_strategy.IPUStrategy().scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)], name="small")
    model.compile("sgd", "mse", steps_per_execution=2)
    for epoch in range(2):
        with pvti.Tracepoint(channel, f"Epoch:{epoch}"):
            model.fit(np.ones((16, 4), np.float32), np.ones((16, 1), np.float32), batch_size=4, verbose=0)
"""
FORKED = """\
import os
from ipu_tf import libpvti as pvti
from ipu_tf.device import timeline
path = pvti.getCurrentTraceFilename()
child = os.fork()
who = "parent" if child else "child"
pvti.Tracepoint.event(pvti.tracePoplar, who)
if child:
    os.waitpid(child, 0)
    print("parent:", timeline.recording() is not None, pvti.getCurrentTraceFilename() == path)
else:
    print("child:", timeline.recording() is not None, repr(pvti.getCurrentTraceFilename()), flush=True)
    pvti.closeTrace()
    os._exit(0)
"""
WALKTHROUGH = """\
from pathlib import Path
import pva
[path] = Path(".").glob("*.pvti")
trace = pva.openTrace(str(path))
[process] = trace.processes
def epochs(events: list[pva.Event]):
    for event in events:
        if event.label.startswith("Epoch"):
            yield event
        yield from epochs(event.children())
found = [event for thread in process.threads for event in epochs(thread.events)]
labels = lambda events: {event.label for event in events} | {x for e in events for x in labels(e.children())}
print([event.label for event in found], min(event.duration for event in found) > 0)
print(sorted(set().union(*(labels(thread.events) for thread in process.threads))))
"""


@pytest.fixture(autouse=True)
def nothing_recorded() -> Iterator[None]:
    """Nothing is recorded before and after."""
    timeline.use(None)
    session._session.clear()
    session._started.clear()
    yield
    timeline.use(None)
    session._session.clear()
    session._started.clear()


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a recording that the environment asks for."""
    monkeypatch.setenv("PVTI_OPTIONS", json.dumps({"enable": "true", "directory": str(tmp_path)}))
    return tmp_path


def only_file(folder: Path, kind: str = "pvti") -> Path:
    """The file of a kind in a folder."""
    [path] = folder.glob(f"*.{kind}")
    return path


def labels(events: Any) -> Any:
    """Labels of events with those within them."""
    return [(event.label, labels(event.children())) for event in events]


def flattened(events: Any) -> list[Any]:
    """Events, and those within them."""
    return [each for event in events for each in (event, *flattened(event.children()))]


def run(added: float = 0.0) -> None:
    """Runs a function on the device. A program that the process has run before is not compiled again."""
    ipu.config.reset_ipu_configuration()
    ipu.config.IPUConfig().configure_ipu_system()
    function = tf.function(lambda x: tf.reduce_sum(x * x) + added)
    with device_work() as work:
        assert float(ipu.ipu_strategy.IPUStrategy().run(function, args=[tf.ones([8])])) == 8.0 + added
    assert work.counts.executions == 1


def test_graphcores_way_of_reading_a_trace_works_on_a_keras_program(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "read.py").write_text(WALKTHROUGH)
    environment = {**os.environ, "PVTI_OPTIONS": '{"enable":"true"}'}
    call = [sys.executable, "-m", "ipu_tf"]
    subprocess.run([*call, "train.py"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    name = NAME.fullmatch(only_file(tmp_path).name)
    assert name is not None
    read = subprocess.run([*call, "read.py"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    first, second = read.splitlines()
    assert first == "['Epoch:0', 'Epoch:1'] True"
    wanted = {"small.fit()", "chunk", "compile", "execute small: train step", "wait for feed", "dequeue"}
    assert wanted <= set(ast.literal_eval(second))
    check_chrome_trace(only_file(tmp_path, "json"), int(name[1]))


def check_chrome_trace(path: Path, pid: int) -> list[dict[str, Any]]:
    """Checks a file against the trace event format; returns its events."""
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    for event in events:
        assert {"ph", "name", "pid", "tid"} <= event.keys() and event["pid"] == pid
        assert PHASES[event["ph"]] <= event.keys()
        assert event.get("dur", 0) >= 0 and isinstance(event["tid"], int)
    return events


def test_events_of_a_program_are_within_each_other(recorded: Path) -> None:
    run(added=0.34375)
    pvti.closeTrace()
    trace = pva.openTrace(only_file(recorded))
    assert trace.process(os.getpid()).pid == os.getpid()
    thread = trace.process(os.getpid()).thread(threading.get_native_id())
    [execute] = [event for event in thread.events if event.channel == "Device"]
    assert execute.label.startswith("execute ")
    # In a thread of its own, or within `execute` where SIGINT is ignored, as in the background of a shell.
    compiled = [e for t in trace.processes[0].threads for e in flattened(t.events) if e.label == "compile"]
    assert compiled and all(event.duration > 0 for event in compiled)


def test_nothing_is_recorded_or_written_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PVTI_OPTIONS", raising=False)
    monkeypatch.setattr(timeline.HostTrace, "add", lambda *_: pytest.fail("something was recorded"))
    run()
    with pvti.Tracepoint(pvti.createTraceChannel("a"), "b"):
        pvti.Graph("Loss", "").addSeries("training").add(0.3)
    pvti.closeTrace()
    assert pvti.getCurrentTraceFilename() == "" and not list(tmp_path.iterdir())
    assert timeline.span("Device", "one") is timeline.span("Device", "another")


def test_tracepoints_of_all_kinds(recorded: Path) -> None:
    channel, other = pvti.createTraceChannel("one"), pvti.createTraceChannel("other")

    class Model:
        """An object with an instrumented method."""

        def step(self, x: int) -> int:
            """Adds one."""
            return x + 1

    @pvti.instrument_fn(channel)
    def outer() -> int:
        pvti.Tracepoint.event(channel, "now")
        with pvti.Tracepoint(other, "inner"):
            return int(pvti.instrument(Model(), ["step"], channel).step(4))

    assert outer() == 5
    pvti.disableTraceChannel(other)
    assert not pvti.checkTraceChannel(other) and pvti.checkTraceChannel(channel)
    with pvti.Tracepoint(other, "hidden"):
        pvti.Tracepoint.begin(channel, "by hand")
        pvti.Tracepoint.end(channel, "by hand")
    pvti.enableTraceChannel(other)
    pvti.Tracepoint.begin(other, "never ended")
    pvti.Tracepoint.end(other, "never begun")
    assert {each.name for each in pvti.listTraceChannel()} >= {"Poplar", "one", "other"}
    assert pvti.getCurrentTraceFilename().startswith(str(recorded))
    pvti.closeTrace()
    [thread] = pva.openTrace(only_file(recorded)).processes[0].threads
    inner: tuple[str, Any] = ("inner", [("test_tracepoints_of_all_kinds.<locals>.Model.step", [])])
    assert labels(thread.events) == [
        ("test_tracepoints_of_all_kinds.<locals>.outer", [("now", []), inner]),
        ("by hand", []),
        ("never ended", []),
    ]


def test_an_event_that_ends_with_an_error_is_recorded(recorded: Path) -> None:
    with pytest.raises(KeyError), pvti.Tracepoint(pvti.createTraceChannel("a"), "fails"):
        raise KeyError
    pvti.closeTrace()
    [thread] = pva.openTrace(only_file(recorded)).processes[0].threads
    assert labels(thread.events) == [("fails", [])]


def test_graphs_and_heatmaps(recorded: Path) -> None:
    series = pvti.Graph("Loss", "%").addSeries("training")
    series.add(0.5)
    series.add(0.25)
    pvti.HeatmapDouble("weights", [0, 1, 2, 4], "2^x").add([0, 0.5, 1, 4, 4.5, -1])
    pvti.closeTrace()
    with sqlite3.connect(only_file(recorded)) as database:
        graph = database.execute("SELECT graph, series, unit, value FROM GRAPH_DATA").fetchall()
        heat = database.execute("SELECT bin_quantities FROM HEATMAP_DATA").fetchall()
    database.close()
    assert graph == [("Loss", "training", "%", 0.5), ("Loss", "training", "%", 0.25)]
    assert json.loads(heat[0][0]) == [2, 1, 1]
    counters = [event for event in check_chrome_trace(only_file(recorded, "json"), os.getpid()) if event["ph"] == "C"]
    assert [event["args"] for event in counters[:2]] == [{"training": 0.5}, {"training": 0.25}]
    assert counters[2]["args"] == {"[0, 1)": 2.0, "[1, 2)": 1.0, "[2, 4)": 1.0}


@pytest.mark.parametrize("edges", [[1], [2, 1], [1, 1], [math.nan, 1]])
def test_bad_edges_of_a_heatmap_are_refused(edges: list[float]) -> None:
    with pytest.raises(ValueError, match="Edges of a heatmap's bins must be two numbers or more that ascend"):
        pvti.HeatmapInt("weights", edges)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", None),
        ("{}", None),
        ('{"enable":"false"}', None),
        ("yes", session.PvtiOptions()),
        ("[1]", session.PvtiOptions()),
        ("0", None),
        ("false", None),
        ('{"enable":"true","directory":"r"}', session.PvtiOptions(Path("r"))),
        ('{"enable":true,"channels":["a","b"]}', session.PvtiOptions(channels=("a", "b"))),
    ],
)
def test_options(text: str, wanted: session.PvtiOptions | None) -> None:
    assert session.parsed(text) == wanted


def test_only_channels_that_are_asked_for_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"enable": "true", "directory": str(tmp_path), "channels": ["mine"]}
    monkeypatch.setenv("PVTI_OPTIONS", json.dumps(options))
    run()
    with pvti.Tracepoint(pvti.createTraceChannel("mine"), "seen"), pvti.Tracepoint(pvti.tracePoplar, "not seen"):
        pass
    pvti.closeTrace()
    [thread] = pva.openTrace(only_file(tmp_path)).processes[0].threads
    assert labels(thread.events) == [("seen", [])]


def test_bad_options_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PVTI_OPTIONS", '{"enable":"true","dir":"x"}')
    with pytest.raises(ValueError, match="PVTI_OPTIONS must have options among enable, .*. Received: dir."):
        run()


def test_a_folder_that_is_gone_at_the_end_is_a_warning(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = recorded / "traces"
    monkeypatch.setenv("PVTI_OPTIONS", json.dumps({"enable": "true", "directory": str(folder)}))
    pvti.Tracepoint.event(pvti.tracePoplar, "one")
    folder.rmdir()
    with pytest.warns(RuntimeWarning, match="No trace was written to"):
        pvti.closeTrace()


def test_foreign_and_damaged_files_are_refused(recorded: Path) -> None:
    pvti.Tracepoint.event(pvti.tracePoplar, "one")
    pvti.closeTrace()
    good = only_file(recorded).read_bytes()
    foreign, damaged, other = (recorded / name for name in ("foreign", "damaged", "other"))
    foreign.write_text("not a trace")
    damaged.write_bytes(good[:4096] + bytes(len(good) - 4096))
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE ABOUT (kind TEXT)")
    database.close()
    for path, said in ((foreign, "must be a trace that"), (other, "must be a trace that"), (damaged, "is damaged")):
        with pytest.raises(ValueError, match=said):
            pva.openTrace(path)
    with pytest.raises(FileNotFoundError):
        pva.openTrace(recorded / "none.pvti")


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("quick_switches")
def test_lanes_and_threads_are_named_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "get_native_id", itertools.count(1).__next__)  # each event is of a new thread
    for _ in range(20):
        trace, done = timeline.HostTrace(), threading.Event()
        failed: list[Any] = []
        for lane in range(300):
            trace.add("Pipeline", "task", 0.0, 1.0, lane=f"lane {lane}")

        def add_to_a_lane(trace: Any = trace, done: Any = done, failed: list[Any] = failed) -> None:
            try:
                while not done.is_set():
                    trace.add("Pipeline", "task", 0.0, 1.0, lane="lane 299")
            except RuntimeError as error:
                failed.append(error)

        adding = threading.Thread(target=add_to_a_lane, daemon=True)
        adding.start()
        for _ in range(1000):
            trace.add("Device", "execute", 0.0, 1.0)
        done.set()
        adding.join(60)
        assert not failed and not adding.is_alive() and len(trace.names()) == 1300


def test_values_that_are_no_numbers_are_in_the_pvti_file_alone(recorded: Path) -> None:
    series = pvti.Graph("Loss").addSeries("training")
    for value in (0.5, math.nan, math.inf, -math.inf):
        series.add(value)
    pvti.closeTrace()
    values = [value for sample in read_pvti(only_file(recorded))[3] for value in sample.values]
    assert list(map(str, values)) == ["0.5", "nan", "inf", "-inf"]
    text = only_file(recorded, "json").read_text()
    events = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["traceEvents"]
    assert [event["args"] for event in events if event["ph"] == "C"] == [{"training": 0.5}]


def test_channels_of_this_package_are_listed_and_disabled(recorded: Path) -> None:
    channels = {each.name: each for each in pvti.listTraceChannel()}
    assert pvti.createTraceChannel("Device") is channels["Device"]
    pvti.disableTraceChannel(channels["Device"])
    run()
    pvti.enableTraceChannel(channels["Device"])
    pvti.closeTrace()
    seen = {span.channel for span in read_pvti(only_file(recorded))[2]}
    assert "Compile" in seen and "Device" not in seen


def test_channels_of_this_package_are_those_of_its_code_and_documents() -> None:
    root = Path(ipu.__file__).parents[1]
    sources = (path.read_text() for package in ("ipu_tf", "keras_ipu") for path in (root / package).rglob("*.py"))
    used = r'(?:\bspan|\btrace\.add|= TraceChannel)\(\s*"(\w+)"'
    assert {name for source in sources for name in re.findall(used, source)} == set(timeline.CHANNELS)
    table = (root / "docs/reports.md").read_text().partition("| channel | events |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| (\w+) \|", table, re.MULTILINE)) == set(timeline.CHANNELS)


@pytest.mark.parametrize("missing", ["file", "file/below"])
def test_a_directory_that_cannot_be_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PVTI_OPTIONS", json.dumps({"enable": "true", "directory": str(tmp_path / missing)}))
    with pytest.raises(OSError, match=f"directory must be a folder to write in. Received: '.*/{missing}'"):
        run()


@pytest.mark.parametrize("value", ['"1"', "1", '"ture"', "null", '""'])
def test_a_recording_is_asked_for_by_true_and_false_only(value: str) -> None:
    with pytest.raises(ValueError, match="PVTI_OPTIONS: enable must be true or false. Received: "):
        session.parsed(f'{{"enable": {value}}}')


def test_a_trace_with_too_many_events_is_written_before_the_warning(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipu_tf.device.timeline.host_trace._MOST_EVENTS", 1)
    for label in ("one", "another"):
        pvti.Tracepoint.event(pvti.tracePoplar, label)
    with pytest.raises(RuntimeWarning, match="1 more are not in it"):  # warnings are errors
        pvti.closeTrace()
    assert [span.label for span in read_pvti(only_file(recorded))[2]] == ["one"]
    assert len(check_chrome_trace(only_file(recorded, "json"), os.getpid())) == 3


def test_a_label_that_cannot_be_written_is_a_warning(recorded: Path) -> None:
    pvti.Tracepoint.event(pvti.tracePoplar, "\udc80")
    with pytest.warns(RuntimeWarning, match=r"No trace was written to '.*pvti': 'utf-8' codec"):
        pvti.closeTrace()
    labels = [event["name"] for event in check_chrome_trace(only_file(recorded, "json"), os.getpid())]
    assert labels[-1] == "\udc80" and not list(recorded.glob("*.pvti"))


def test_a_forked_process_records_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PVTI_OPTIONS": json.dumps({"enable": "true", "directory": str(tmp_path)})}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout == "child: False ''\nparent: True True\n"
    assert [span.label for span in read_pvti(only_file(tmp_path))[2]] == ["parent"]


def test_profiles_of_jax_have_a_step_for_each_execution(tmp_path: Path) -> None:
    ipu.config.IPUConfig().configure_ipu_system()
    function = tf.function(lambda x: x + 1)
    strategy = ipu.ipu_strategy.IPUStrategy()
    with device_work() as work, jax.profiler.trace(str(tmp_path)):
        for _ in range(3):
            strategy.run(function, args=[tf.constant(1.0)])
    assert work.counts.executions == 3
    [path] = tmp_path.glob("**/*.xplane.pb")
    profile = jax.profiler.ProfileData.from_file(str(path))
    events = [event for plane in profile.planes for line in plane.lines for event in line.events]
    steps = [dict(event.stats)["step_num"] for event in events if event.name.startswith("execute ")]
    assert steps == [0, 1, 2]
