"""Pictures of timetables: in the terminal, as SVG, as a trace for Perfetto, and the example that makes them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_tf.pipeline import (
    Measured,
    PipelineShape,
    Recomputation,
    Schedule,
    StageTimes,
    Task,
    TaskKind,
    Timetable,
    TimetablePicture,
    bubble,
    chrome_trace,
    grouped,
    interleaved,
    plan,
    sequential,
    stash,
    timetable,
    timetable_svg,
    timetable_text,
    trace_events,
    trace_json,
)

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "pipeline_timetable.py"
SVG = "{http://www.w3.org/2000/svg}"
THEN = Recomputation.THEN_BACKPROPAGATE
#: Stages 0 and 2 share a device; with all kinds of tasks.
SMALL = grouped(PipelineShape(3, device_mapping=(0, 1, 0), recomputation=THEN), 6)


def test_a_picture_in_the_terminal() -> None:
    assert timetable_text(SMALL).splitlines() == [
        "grouped, training, 3 stages on 2 IPUs, 6 micro-batches, 12 ticks, recompute then backpropagate",
        "                ramp-up                                | ramp-down                          | update",
        "tick            0   1   2   3      4         5         | 6         7      8      9      10  | 11",
        "IPU 0  stage 0  F0  F1  F2  F3     F4 R0     B0 F5 R1  | B1 R2     B2 R3  B3 R4  B4 R5  B5  | U",
        "IPU 0  stage 2          F0  B0 F1  B1 F2     B2 F3     | B3 F4     B4 F5  B5                | U",
        "IPU 1  stage 1  ·   F0  F1  F2 R0  B0 F3 R1  B1 F4 R2  | B2 F5 R3  B3 R4  B4 R5  B5     ·   | U",
    ]


def test_one_of_each_is_not_many() -> None:
    assert timetable_text(sequential(PipelineShape(1, training=False), 1)).splitlines() == [
        "sequential, inference, 1 stage on 1 IPU, 1 micro-batch, 1 tick",
        "                steady",
        "tick            0",
        "IPU 0  stage 0  F0",
    ]


def test_a_wide_picture_goes_on_below() -> None:
    assert timetable_text(interleaved(PipelineShape(2), 4), width=45).splitlines() == [
        "interleaved, training, 2 stages on 2 IPUs, 4 micro-batches, 11 ticks",
        "                ramp-up         | steady",
        "tick            0   1   2   3   | 4   5",
        "IPU 0  stage 0  F0  ·   F1  B0  | F2  B1",
        "IPU 1  stage 1  ·   F0  B0  F1  | B1  F2",
        "",
        "                steady  | ramp-down | update",
        "tick            6   7   | 8   9     | 10",
        "IPU 0  stage 0  F3  B2  | ·   B3    | U",
        "IPU 1  stage 1  B2  F3  | B3  ·     | U",
    ]


@given(st.sampled_from(Schedule), st.integers(1, 4), st.integers(20, 90))
def test_every_task_is_in_the_picture(schedule: Schedule, stages: int, width: int) -> None:
    made = timetable(schedule, PipelineShape(stages), 2 * stages)
    lines = timetable_text(made, width=width).splitlines()[1:]
    letters = Counter(re.findall(r"\b(?:[FBR]\d+|U)\b", "\n".join(line for line in lines if "stage" in line)))
    assert letters == Counter(task.label for task in made.order())
    ticks = [int(number) for line in lines if line.startswith("tick") for number in re.findall(r"\d+", line)]
    assert ticks == list(range(made.ticks))
    # A block has at least a tick, however narrow the terminal.
    assert max(map(len, lines)) <= max(width, 16 + 16)


def boxes(text: str) -> list[tuple[str, str, float, float, float]]:
    """(tooltip, label, x, y, width) of each task's box in an SVG document."""
    found = []
    for group in ElementTree.fromstring(text).iter(f"{SVG}g"):
        box, label, told = group.find(f"{SVG}rect"), group.find(f"{SVG}text"), group.find(f"{SVG}title")
        assert box is not None and label is not None and told is not None
        x, y, width = (float(box.attrib[name]) for name in ("x", "y", "width"))
        found.append((told.text or "", label.text or "", x, y, width))
    return found


def test_a_picture_for_documents() -> None:
    text = timetable_svg(SMALL)
    found = boxes(text)
    assert Counter(label for _, label, *_ in found) == Counter(
        "U" if task.micro_batch is None else str(task.micro_batch) for task in SMALL.order()
    )
    assert found[0][0] == "forward, stage 0, micro-batch 0, tick 0"
    assert {told.split(",")[0] for told, *_ in found} == {"forward", "recompute", "backward", "weight update"}
    words = [element.text for element in ElementTree.fromstring(text).iter(f"{SVG}text")]
    for word in (
        "IPU 0  stage 2",
        "ramp-up",
        "ramp-down",
        "update",
        "forward",
        "recompute",
        "backward",
        "weight update",
    ):
        assert word in words
    assert "steady" not in words
    assert any(word and word.startswith("grouped, training, 3 stages") for word in words)


@given(st.sampled_from(Schedule), st.integers(1, 4), st.floats(1e-6, 1e3), st.floats(0.5, 3))
def test_boxes_are_in_proportion_and_do_not_overlap(
    schedule: Schedule, stages: int, forward: float, ratio: float
) -> None:
    made = timetable(schedule, PipelineShape(stages), 2 * stages)
    times = [StageTimes(forward=forward, backward=forward * ratio)] * stages
    found = [box for box in boxes(timetable_svg(made, times)) if box[1] != "U"]
    widths = {kind: {box[4] for box in found if box[0].startswith(kind)} for kind in ("forward", "backward")}
    (ahead,), (back,) = widths["forward"], widths["backward"]
    assert back / ahead == pytest.approx(ratio, rel=1e-3)
    for lane in {box[3] for box in found}:
        ends = sorted((x, x + width) for _, _, x, y, width in found if y == lane)
        assert all(end <= start + 0.1 for (_, end), (start, _) in zip(ends, ends[1:], strict=False))


def words_of(text: str) -> list[tuple[str, float, float, float, float]]:
    """(text, left, right, y, height) of each text of an SVG document, with letters of two thirds of their height."""
    found = []
    for element in ElementTree.fromstring(text).iter(f"{SVG}text"):
        size = float(element.attrib.get("font-size", 11))
        x, wide = float(element.attrib["x"]), 0.64 * size * len(element.text or "")
        left = x - wide / 2 if element.attrib.get("text-anchor") == "middle" else x
        found.append((element.text or "", left, left + wide, float(element.attrib["y"]), size))
    return found


WIDE = {
    "one stage": sequential(PipelineShape(1), 1),
    "no update": grouped(PipelineShape(2, training=False), 2),
    "64 micro-batches": grouped(PipelineShape(4), 64),
    "12 stages": interleaved(PipelineShape(12), 24),
    "recomputation": SMALL,
}


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("width", [None, 1000, 640, 10])
def test_labels_are_within_the_picture_and_apart(name: str, width: float | None) -> None:
    text = timetable_svg(WIDE[name], width=width)
    root = ElementTree.fromstring(text)
    whole, height = (float(root.attrib[side]) for side in ("width", "height"))
    words = words_of(text)
    assert all(left >= 0 and right <= whole + 0.1 and y <= height for _, left, right, y, _ in words)
    for y in {word[3] for word in words}:
        line = sorted(word[1:3] for word in words if word[3] == y)
        assert all(end <= start + 0.1 for (_, end), (start, _) in zip(line, line[1:], strict=False)), line
    for group in root.iter(f"{SVG}g"):
        box, label = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
        assert box is not None and label is not None and label.text is not None
        assert 0.64 * float(label.attrib["font-size"]) * len(label.text) <= float(box.attrib["width"]) + 0.1


def as_measured(made: Timetable) -> tuple[Measured, ...]:
    """Its tasks, each of which takes a fifth longer than planned, a unit a millisecond; updates take no time."""
    return tuple(Measured(one.task, one.device, 1.2e-3 * one.start, 1.2e-3 * one.end) for one in plan(made))


@pytest.mark.parametrize("name", WIDE)
def test_measured_tasks_are_below_the_planned_ones(name: str) -> None:
    made = WIDE[name]
    measured = as_measured(made)
    text = TimetablePicture(made, measured=measured).svg(640)
    found, planned = boxes(text), boxes(timetable_svg(made, width=640))
    assert found[: len(planned)] == planned
    ours = found[len(planned) :]
    lowest = max(y for *_, y, _ in planned)
    assert len(ours) == len(measured) and all(y > lowest for _, _, _, y, _ in ours)
    scale = sum(width for *_, width in ours) / sum(one.end - one.start for one in measured)
    left = min(x for _, _, x, _, _ in ours)
    for (told, _, x, _, width), one in zip(ours, measured, strict=True):
        assert told.endswith(f"stage {one.task.stage}, {1e3 * (one.end - one.start):.3g} ms") or "micro-batch" in told
        assert x == pytest.approx(left + scale * one.start, abs=0.1)
        assert width == pytest.approx(scale * (one.end - one.start), abs=0.1)
    words = [word[0] for word in words_of(text)]
    assert f"measured: {1.2 * bubble(made).time:.3g} ms, {bubble(made).time_share:.0%} idle" in words
    whole, height = (float(ElementTree.fromstring(text).attrib[side]) for side in ("width", "height"))
    assert all(left >= 0 and right <= whole + 0.1 and y <= height for _, left, right, y, _ in words_of(text))


def test_measured_tasks_of_another_timetable_are_refused() -> None:
    made, task = grouped(PipelineShape(2), 4), Task(TaskKind.FORWARD, 0, 0)
    with pytest.raises(ValueError, match="must not end before it starts"):
        timetable_svg(made, measured=[Measured(task, 0, 2.0, 1.0)])
    with pytest.raises(ValueError, match="must be of the timetable, which has 2 stages on 2 IPUs"):
        timetable_svg(made, measured=[Measured(task, 1, 0.0, 1.0)])


@pytest.mark.parametrize("width", [640, 1000, 2000])
def test_a_long_timetable_continues_in_bands_that_fit(width: float) -> None:
    made = WIDE["64 micro-batches"]
    text = timetable_svg(made, width=width)
    assert float(ElementTree.fromstring(text).attrib["width"]) <= width
    assert Counter(box[1] for box in boxes(text)) == Counter(box[1] for box in boxes(timetable_svg(made, width=None)))
    lanes = {box[3] for box in boxes(text)}
    assert len(lanes) > 4 and len(lanes) % 4 == 0
    assert [word[0] for word in words_of(text)].count("time") == len(lanes) / 4


def test_the_time_axis_has_round_times_to_the_end() -> None:
    made = interleaved(PipelineShape(2), 4)
    axis = {word[3]: [] for word in words_of(timetable_svg(made)) if word[0] == "time"}  # type: ignore[var-annotated]
    for word in words_of(timetable_svg(made)):
        if word[3] in axis and word[0] != "time":
            axis[word[3]].append((float(word[0]), (word[1] + word[2]) / 2))
    (numbers,) = axis.values()
    assert numbers[0][0] == 0 and numbers[-1][0] == pytest.approx(bubble(made).time, abs=2)
    steps = {round(second[0] - first[0], 6) for first, second in zip(numbers, numbers[1:], strict=False)}
    assert len(steps) == 1
    # The number is where a task that begins then begins: the first backward pass of the last stage.
    (start,) = [
        x for told, _, x, _, _ in boxes(timetable_svg(made)) if told == "backward, stage 1, micro-batch 0, tick 2"
    ]
    assert dict(numbers)[2] == pytest.approx(start, abs=0.1)


@given(st.sampled_from(Schedule), st.integers(1, 4), st.booleans(), st.sampled_from([400.0, None]))
def test_shaded_time_is_the_idle_time(schedule: Schedule, stages: int, training: bool, width: float | None) -> None:
    made = timetable(schedule, PipelineShape(stages, training=training), 2 * stages)
    text = timetable_svg(made, width=width)
    rects = [e for e in ElementTree.fromstring(text).iter(f"{SVG}rect") if e.attrib.get("class") == "ipu-idle"]
    shaded = sum(float(e.attrib["width"]) for e in rects if e.attrib["width"] != "12")
    busy = sum(box[4] for box in boxes(text) if box[1] != "U")
    assert shaded / (shaded + busy) == pytest.approx(bubble(made).time_share, abs=1e-3)


def test_colours_follow_a_dark_scheme() -> None:
    style = ElementTree.fromstring(timetable_svg(SMALL)).find(f"{SVG}style")
    assert style is not None and style.text is not None
    light, dark = style.text.split("@media (prefers-color-scheme:dark)")
    classes = re.findall(r"\.(ipu-\w+)", light)
    assert classes == re.findall(r"\.(ipu-\w+)", dark)
    used = {
        element.attrib["class"]
        for element in ElementTree.fromstring(timetable_svg(SMALL)).iter()
        if "class" in element.attrib
    }
    assert used == set(classes)


def test_a_picture_is_what_notebooks_and_terminals_show(tmp_path: Path) -> None:
    picture = TimetablePicture(SMALL, heading="Six micro-batches")
    assert picture._repr_html_() == timetable_svg(SMALL, heading="Six micro-batches")
    assert str(picture) == timetable_text(SMALL)
    picture.save(tmp_path / "a.svg", width=None)
    assert (tmp_path / "a.svg").read_text() == timetable_svg(SMALL, heading="Six micro-batches", width=None)
    assert picture.bubble == bubble(SMALL)


def test_a_heading_is_text_not_markup() -> None:
    text = timetable_svg(sequential(PipelineShape(1), 1), heading="a < b & c")
    title = ElementTree.fromstring(text).find(f"{SVG}title")
    assert title is not None and title.text == "a < b & c"
    assert "recompute" not in text


def slices(trace: dict[str, object], process: int) -> list[dict[str, object]]:
    """The slices of a process's tracks."""
    events = trace["traceEvents"]
    assert isinstance(events, list)
    return [event for event in events if event["ph"] == "X" and event["pid"] == process]


def test_a_trace_has_a_track_for_each_device() -> None:
    trace = json.loads(trace_json(SMALL, unit_seconds=2e-3))
    named = [event for event in trace["traceEvents"] if event["name"] == "thread_name"]
    assert [(event["tid"], event["args"]["name"]) for event in named] == [(0, "IPU 0"), (1, "IPU 1")]
    planned = slices(trace, 1)
    assert len(planned) == len(list(SMALL.placed()))
    assert planned[0] == {
        "ph": "X",
        "name": "F0 stage 0",
        "cat": "forward",
        "pid": 1,
        "tid": 0,
        "ts": 0.0,
        "dur": 2000.0,
        "args": {"stage": 0, "tick": 0, "micro_batch": 0},
    }
    assert {event["cat"] for event in planned} == {"forward", "recompute", "backward", "update"}
    ends = [event["ts"] + event["dur"] for event in planned]  # type: ignore[operator]
    assert max(ends) == pytest.approx(2000.0 * bubble(SMALL).time)


def test_a_trace_counts_what_is_stashed() -> None:
    made = interleaved(PipelineShape(2), 2)
    events = chrome_trace(made)["traceEvents"]
    first = [event for event in events if event["ph"] == "C" and event["name"] == "stashed by stage 0"]
    assert [row[0] for row in stash(made)] == [1, 1, 2, 1, 1, 0, 0]
    assert [event["args"]["micro-batches"] for event in first] == [1, 2, 1, 0]
    # Ticks: F0 | F0' | F1, B0' | B0, F1' | B1' | B1 | U
    assert [event["ts"] for event in first] == [1000.0, 4000.0, 6000.0, 10000.0]
    inference = chrome_trace(grouped(PipelineShape(2, training=False), 2))["traceEvents"]
    assert not [event for event in inference if event["ph"] == "C"]


def test_measured_times_have_tracks_of_their_own() -> None:
    task = Task(TaskKind.FORWARD, 1, 0)
    trace = chrome_trace(SMALL, measured=[Measured(task, 1, 0.5, 0.75)])
    (only,) = slices(trace, 2)
    assert (only["name"], only["tid"], only["ts"], only["dur"]) == ("F0 stage 1", 1, 500000.0, 250000.0)
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert names == ["planned timetable (emulated IPUs)", "measured"]
    with pytest.raises(ValueError, match="A measured task must not end before it starts."):
        chrome_trace(SMALL, measured=[Measured(task, 1, 1.0, 0.5)])


def run_example(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the example as a user would; warnings are errors."""
    command = [sys.executable, "-W", "error", str(EXAMPLE), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_the_example_shows_the_three_schedules(tmp_path: Path) -> None:
    done = run_example("--stages=2", f"--svg={tmp_path}", f"--trace={tmp_path / 'traces'}")
    assert done.returncode == 0, done.stderr
    for schedule in ("grouped", "interleaved", "sequential"):
        assert f"{schedule}, training, 2 stages on 2 IPUs, 4 micro-batches" in done.stdout
        assert boxes((tmp_path / f"{schedule}.svg").read_text())
        assert slices(json.loads((tmp_path / "traces" / f"{schedule}.json").read_text()), 1)
        assert f"wrote {tmp_path / schedule}.svg" in done.stdout
    assert "idle time" in done.stdout


def test_the_example_says_what_does_not_go() -> None:
    done = run_example("--stages=3", "--micro-batches=4", "--device-mapping", "0", "1", "0", "--recompute")
    assert done.returncode == 0, done.stderr
    assert "grouped: The number of iterations of the pipeline must be a multiple of 6, but it is 4." in done.stdout
    assert "interleaved: The pipelining schedule 'Interleaved' does not currently support" in done.stdout
    assert "sequential, training, 3 stages on 2 IPUs" in done.stdout
    assert run_example("--stages=0").returncode == 1


def test_the_example_explains_itself() -> None:
    done = run_example("--help")
    for option in ("--stages", "--micro-batches", "--device-mapping", "--inference", "--recompute", "--svg", "--trace"):
        assert option in done.stdout


def test_inference_has_no_backward_passes() -> None:
    done = run_example("--inference")
    assert "grouped, inference, 3 stages on 3 IPUs, 6 micro-batches, 8 ticks" in done.stdout
    assert not re.search(r"\bB\d", done.stdout)


def test_pictures_of_long_executions_are_quick_to_make() -> None:
    made: Timetable = grouped(PipelineShape(16), 512)
    assert len(boxes(timetable_svg(made))) == 16 * (2 * 512 + 1)


def test_trace_events_are_imported_by_their_former_name_too() -> None:
    """By programs: type checkers do not know it."""
    names: dict[str, object] = {}
    exec("import ipu_tf.pipeline.trace as former; from ipu_tf.pipeline.trace import chrome_trace", names)  # noqa: S102
    assert (names["former"], names["chrome_trace"]) == (trace_events, trace_events.chrome_trace)
