"""Timetables of pipelines: small ones written out by hand, and invariants that all of them have."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_tf.pipeline import (
    ALL_DEVICES,
    MicroBatchCountError,
    PipelineShape,
    Recomputation,
    Schedule,
    ScheduleError,
    Task,
    TaskKind,
    Timetable,
    TimetableError,
    check,
    check_micro_batches,
    default_recomputation,
    grouped,
    interleaved,
    overlap_length,
    peak_stash,
    problems,
    sequential,
    stash,
    timetable,
)

GROUPED, INTERLEAVED, SEQUENTIAL = Schedule
NONE, THEN, WITH = Recomputation
FORWARD, RECOMPUTE, BACKWARD, UPDATE = TaskKind

Cells = list[list[list[str]]]


def written(picture: str) -> Cells:
    """`[ticks][devices]`, the tasks of each cell, from a picture with a line a device and a bar after each tick."""
    devices = [[cell.split() for cell in line.split("|")] for line in picture.strip().splitlines()]
    return [list(tick) for tick in zip(*devices, strict=True)]


def shown(plan: Timetable) -> Cells:
    """The same of a timetable: `B3` for a task of the stage with the device's number, else with the stage: `B3@2`."""
    return [
        [
            [task.label if task.stage == device else f"{task.label}@{task.stage}" for task in cell]
            for device, cell in enumerate(row)
        ]
        for row in plan.cells
    ]


STAIRCASES: dict[str, tuple[Callable[[], Timetable], str]] = {
    "grouped": (
        lambda: grouped(PipelineShape(2), 4),
        """
        F0 | F1 | F2    | B0 F3 | B1    | B2 | B3 | U
           | F0 | B0 F1 | B1 F2 | B2 F3 | B3 |    | U
        """,
    ),
    "interleaved": (
        lambda: interleaved(PipelineShape(2), 4),
        """
        F0 |    | F1 | B0 | F2 | B1 | F3 | B2 |    | B3 | U
           | F0 | B0 | F1 | B1 | F2 | B2 | F3 | B3 |    | U
        """,
    ),
    "sequential": (
        lambda: sequential(PipelineShape(2), 3),
        """
        F0 |    |    | B0 | F1 |    |    | B1 | F2 |    |    | B2 | U
           | F0 | B0 |    |    | F1 | B1 |    |    | F2 | B2 |    | U
        """,
    ),
    "interleaved, three stages": (
        lambda: interleaved(PipelineShape(3), 3),
        """
        F0 |    | F1 |    | F2 | B0 |    | B1 |    | B2 | U
           | F0 |    | F1 | B0 | F2 | B1 |    | B2 |    | U
           |    | F0 | B0 | F1 | B1 | F2 | B2 |    |    | U
        """,
    ),
    "grouped inference": (
        lambda: grouped(PipelineShape(3, training=False), 3),
        """
        F0 | F1 | F2 |    |
           | F0 | F1 | F2 |
           |    | F0 | F1 | F2
        """,
    ),
    "interleaved inference": (
        lambda: interleaved(PipelineShape(2, training=False), 4),
        """
        F0 | F1 | F2 | F3 |
           | F0 | F1 | F2 | F3
        """,
    ),
    "sequential inference": (
        lambda: sequential(PipelineShape(2, training=False), 2),
        """
        F0 |    | F1 |
           | F0 |    | F1
        """,
    ),
    "grouped, stages that share a device": (
        lambda: grouped(PipelineShape(3, device_mapping=(0, 1, 0)), 6),
        """
        F0|F1|F0@2 F2|B0@2 F1@2 F3|B1@2 F2@2 F4|B0 B2@2 F3@2 F5|B1 B3@2 F4@2|B2 B4@2 F5@2|B3 B5@2|B4|B5|U U@2
          |F0|F1     |F2          |B0 F3       |B1 F4          |B2 F5       |B3          |B4     |B5|  |U
        """,
    ),
    "interleaved inference, stages that share a device": (
        lambda: interleaved(PipelineShape(4, device_mapping=(0, 0, 1, 1), training=False), 4),
        """
        F0 | F0@1 | F1   | F1@1 | F2   | F2@1 | F3   | F3@1 |      |
           |      | F0@2 | F0@3 | F1@2 | F1@3 | F2@2 | F2@3 | F3@2 | F3@3
        """,
    ),
    "a stage on all devices": (
        lambda: sequential(PipelineShape(2, device_mapping=(1, ALL_DEVICES), training=False), 1),
        """
             | F0@1
        F0@0 | F0
        """,
    ),
    "parallel stages, and a device without any": (
        lambda: sequential(PipelineShape(2, device_mapping=((0, 1), 0), devices=3), 1),
        """
        F0   | F0@1 | B0@1 | B0   | U U@1
        F0@0 |      |      | B0@0 | U@0
             |      |      |      |
        """,
    ),
    "grouped, recomputed": (
        lambda: grouped(PipelineShape(2, recomputation=THEN), 4),
        """
        F0 | F1 | F2 R0 | B0 F3 R1 | B1 R2 | B2 R3 | B3 | U
           | F0 | B0 F1 | B1 F2    | B2 F3 | B3    |    | U
        """,
    ),
    "interleaved, recomputed": (
        lambda: interleaved(PipelineShape(2, recomputation=THEN), 2),
        """
        F0 |    | F1 R0 | B0 | R1 | B1 | U
           | F0 | B0    | F1 | B1 |    | U
        """,
    ),
    "grouped, recomputed as part of the backward pass": (
        lambda: grouped(PipelineShape(2, recomputation=WITH), 4),
        """
        F0 | F1 | F2    | R0 B0 F3 | R1 B1 | R2 B2 | R3 B3 | U
           | F0 | B0 F1 | B1 F2    | B2 F3 | B3    |       | U
        """,
    ),
    "batch serialization": (
        lambda: sequential(PipelineShape(2, device_mapping=(0, 0), recomputation=WITH), 2, 2),
        """
        F0 F1 | F0@1 F1@1 | B0@1 B1@1 | R0 B0 R1 B1 | F2 F3 | F2@1 F3@1 | B2@1 B3@1 | R2 B2 R3 B3 | U U@1
        """,
    ),
    "grouped with overlapped input and output": (
        lambda: grouped(PipelineShape(1, training=False), 3, io_tiles=True),
        "F0 | F1 | F2",
    ),
}


@pytest.mark.parametrize("name", STAIRCASES)
def test_a_timetable_written_out(name: str) -> None:
    make, picture = STAIRCASES[name]
    made = make()
    assert shown(made) == written(picture)
    assert problems(made) == ()


PHASES = [
    (grouped(PipelineShape(2), 8), (4, 4, 3, 1)),
    (grouped(PipelineShape(2), 4), (4, 0, 3, 1)),
    (grouped(PipelineShape(2), 7, io_tiles=True), (4, 0, 6, 1)),
    (interleaved(PipelineShape(3), 6), (6, 6, 4, 1)),
    (sequential(PipelineShape(3), 2), (0, 12, 0, 1)),
    (grouped(PipelineShape(3, training=False), 6), (3, 3, 2, 0)),
]


@pytest.mark.parametrize(("made", "lengths"), PHASES)
def test_the_phases_are_the_program_s_parts(made: Timetable, lengths: tuple[int, ...]) -> None:
    phases = made.phases
    parts = (phases.ramp_up, phases.steady, phases.ramp_down, phases.update)
    assert tuple(map(len, parts)) == lengths
    assert [tick for part in parts for tick in part] == list(range(made.ticks))
    assert [name for name, _ in phases.named()] == [
        name for name, length in zip(("ramp-up", "steady", "ramp-down", "update"), lengths, strict=True) if length
    ]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Schedule, PipelineShape]:
    """A schedule and a pipeline of up to 5 stages that goes with it."""
    schedule = draw(st.sampled_from(Schedule))
    training = draw(st.booleans())
    stages = draw(st.integers(1, 5))
    own = draw(st.permutations(range(stages)))
    shared = draw(st.lists(st.integers(0, 3), min_size=stages, max_size=stages))
    mapping = own if (schedule is INTERLEAVED and training) or draw(st.booleans()) else shared
    modes = [NONE, default_recomputation(schedule)] + ([WITH] if schedule is GROUPED else [])
    recomputation = draw(st.sampled_from(modes))
    return schedule, PipelineShape(stages, tuple(mapping), training, recomputation)


@given(shapes(), st.integers(1, 3))
def test_every_timetable_is_right(pipeline: tuple[Schedule, PipelineShape], blocks: int) -> None:
    """By the checks, which know the stages' needs but not the schedules."""
    schedule, shape = pipeline
    made = timetable(schedule, shape, blocks * overlap_length(schedule, shape))
    check(made)
    assert len(made.order()) == len(set(made.order()))
    assert [len(row) for row in made.cells] == [made.devices] * made.ticks


@given(shapes(), st.integers(1, 3))
def test_ticks_and_stash_follow_the_formulas(pipeline: tuple[Schedule, PipelineShape], blocks: int) -> None:
    schedule, shape = pipeline
    stages, count = shape.stages, blocks * overlap_length(schedule, shape)
    made = timetable(schedule, shape, count)
    if schedule is SEQUENTIAL:
        assert made.ticks == count * shape.period + shape.training
    if schedule is GROUPED:
        assert made.ticks == count + shape.period - 1 + shape.training
    if schedule is INTERLEAVED and shape.training:
        assert made.ticks == 2 * (count - 1) + shape.period + 1
    # The stash's places between forward and backward pass: those of Graphcore's FIFOs, and the one that is under way.
    behind = {GROUPED: 2, INTERLEAVED: 1, SEQUENTIAL: 0}[schedule]
    places = tuple(behind * (stages - 1 - stage) + 1 for stage in range(stages))
    assert peak_stash(made) == (places if shape.training else (0,) * stages)
    assert stash(made)[-1] == (0,) * stages


@given(shapes(), st.integers(1, 3))
def test_a_device_does_one_thing_a_tick_unless_grouped(pipeline: tuple[Schedule, PipelineShape], blocks: int) -> None:
    """Input stages apart, and repeated forward passes, which have no tick of their own."""
    schedule, shape = pipeline
    made = timetable(schedule, shape, blocks * overlap_length(schedule, shape))
    for row in made.cells:
        for cell in row:
            kinds = [task.kind for task in cell if task.kind in (FORWARD, BACKWARD)]
            if schedule is GROUPED:
                assert kinds == sorted(kinds, key=[BACKWARD, FORWARD].index)
            else:
                assert len(kinds) <= 1


@given(shapes(), st.integers(1, 3))
def test_a_stage_waits_one_tick_for_its_input(pipeline: tuple[Schedule, PipelineShape], blocks: int) -> None:
    """Micro-batches pass the pipeline without stopping: no result is kept for longer than a tick on its way."""
    schedule, shape = pipeline
    made = timetable(schedule, shape, blocks * overlap_length(schedule, shape))
    ticks = {placed.task: placed.tick for placed in made.placed()}
    for number in range(made.micro_batches):
        way = [ticks[Task(FORWARD, stage, number)] for stage in range(shape.stages)]
        if shape.training:
            way += [ticks[Task(BACKWARD, stage, number)] for stage in reversed(range(shape.stages))]
        assert way == list(range(way[0], way[0] + shape.period))


OVERLAPS = [
    (GROUPED, PipelineShape(3), 6),
    (GROUPED, PipelineShape(3, training=False), 3),
    (GROUPED, PipelineShape(4, (0, 0, 0, 0)), 8),
    (INTERLEAVED, PipelineShape(3), 3),
    (INTERLEAVED, PipelineShape(4, (2, 0, 3, 1)), 4),
    (INTERLEAVED, PipelineShape(3, training=False), 3),
    (INTERLEAVED, PipelineShape(4, (0, 0, 1, 1), training=False), 2),
    (INTERLEAVED, PipelineShape(3, (0, 1, 0), training=False), 1),
    (INTERLEAVED, PipelineShape(2, (ALL_DEVICES, (0, 1)), training=False), 1),
    (SEQUENTIAL, PipelineShape(3), 1),
    (SEQUENTIAL, PipelineShape(3, training=False), 1),
]


@pytest.mark.parametrize(("schedule", "shape", "overlap"), OVERLAPS)
def test_legal_numbers_of_micro_batches(schedule: Schedule, shape: PipelineShape, overlap: int) -> None:
    assert overlap_length(schedule, shape) == overlap
    for count in range(1, 3 * overlap + 1):
        if count % overlap:
            text = f"must be a multiple of {overlap}, but it is {count}"
            with pytest.raises(MicroBatchCountError, match=text):
                timetable(schedule, shape, count)
        else:
            assert timetable(schedule, shape, count).micro_batches == count


NAMES = (
    "This number might be called `gradient_accumulation_count`, `gradient_accumulation_steps_per_replica` or "
    "`steps_per_execution` depending on the API used."
)


@pytest.mark.parametrize(
    ("count", "overlap", "io_tiles", "text"),
    [
        (5, 4, False, f"The number of iterations of the pipeline must be a multiple of 4, but it is 5. {NAMES}"),
        (0, 4, False, f"The number of iterations of the pipeline must be at least 4, but it is 0. {NAMES}"),
        (5, 4, True, f"The number of iterations of the pipeline must be at least 6, but it is 5. {NAMES}"),
    ],
)
def test_wrong_numbers_of_micro_batches(count: int, overlap: int, io_tiles: bool, text: str) -> None:
    with pytest.raises(MicroBatchCountError) as raised:
        check_micro_batches(count, overlap, io_tiles)
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: PipelineShape(0), ValueError, "A pipeline needs at least one stage. Received: 0."),
        (
            lambda: PipelineShape(3, (0, 1)),
            ValueError,
            "Each stage must be mapped to an IPU: 2 mappings != 3 stages",
        ),
        (
            lambda: PipelineShape(2, (0, -2)),
            ValueError,
            "device_mapping must have for each stage a device from 0 on, -1 for all devices, or a tuple of different "
            "devices. Received for stage 1: -2.",
        ),
        (lambda: PipelineShape(1, ((0, 0),)), ValueError, "Received for stage 0: (0, 0)."),
        (lambda: PipelineShape(1, ((),)), ValueError, "Received for stage 0: ()."),
        (
            lambda: PipelineShape(2, (0, 2), devices=2),
            ValueError,
            "The device mapping (0, 2) needs 3 devices. Received: devices=2.",
        ),
        (
            lambda: interleaved(PipelineShape(3, (0, 1, 0)), 3),
            ScheduleError,
            "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages on the same "
            "device for training graphs. Please use a different pipeline schedule.",
        ),
        (
            lambda: sequential(PipelineShape(2, recomputation=THEN), 1),
            ScheduleError,
            "The pipelining schedule 'Sequential' does not support the recomputation mode "
            "'RecomputeThenBackpropagate'. Use RecomputationMode.Auto, which takes one that the schedule supports.",
        ),
        (
            lambda: interleaved(PipelineShape(2, recomputation=WITH), 2),
            ScheduleError,
            "The pipelining schedule 'Interleaved' does not support the recomputation mode "
            "'RecomputeAndBackpropagateInterleaved'.",
        ),
        (
            lambda: sequential(PipelineShape(2), 2, 2),
            ScheduleError,
            "When using batch serialization, all the pipeline stages need to be mapped to a single IPU.",
        ),
        (
            lambda: sequential(PipelineShape(2), 2, 0),
            ValueError,
            "batch_serialization_iterations must be at least 1. Received: 0.",
        ),
    ],
)
def test_what_cannot_be_scheduled(make: Callable[[], object], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as raised:
        make()
    assert text in str(raised.value)


def test_schedule_errors_are_what_the_surface_promises() -> None:
    """`pipelining_ops` raises NotImplementedError for these."""
    assert issubclass(ScheduleError, NotImplementedError)
    assert issubclass(MicroBatchCountError, ValueError)


def moved(made: Timetable, task: Task, tick: int, device: int) -> Timetable:
    """A timetable with a task taken from wherever it is and put at the end of another cell."""
    rows = [[[t for t in cell if t != task] for cell in row] for row in made.cells]
    rows[tick][device].append(task)
    return dataclasses.replace(made, cells=tuple(tuple(map(tuple, row)) for row in rows))


def added(made: Timetable, task: Task, tick: int, device: int) -> Timetable:
    """A timetable with one task more."""
    rows = [[list(cell) for cell in row] for row in made.cells]
    rows[tick][device].append(task)
    return dataclasses.replace(made, cells=tuple(tuple(map(tuple, row)) for row in rows))


BASE = interleaved(PipelineShape(2, recomputation=THEN), 2)
WRONG = [
    (moved(BASE, Task(FORWARD, 0, 1), 2, 1), "F1 of stage 0 runs 0 times on device 0, where it should run 1 times."),
    (moved(BASE, Task(FORWARD, 0, 1), 2, 1), "F1 of stage 0 runs 1 times on device 1, where it should run 0 times."),
    (added(BASE, Task(BACKWARD, 1, 0), 4, 1), "B0 of stage 1 runs 2 times on device 1, where it should run 1 times."),
    (added(BASE, Task(BACKWARD, 1, 0), 4, 1), "B0 of stage 1 runs at several ticks: [2, 4]."),
    (added(BASE, Task(RECOMPUTE, 1, 0), 1, 1), "R0 of stage 1 runs 1 times on device 1, where it should run 0 times."),
    (moved(BASE, Task(FORWARD, 1, 0), 0, 1), "F0 of stage 1 at tick 0 needs F0 of stage 0, which is at tick 0."),
    (moved(BASE, Task(BACKWARD, 1, 0), 0, 1), "B0 of stage 1 at tick 0 needs F0 of stage 1, which is at tick 1."),
    (moved(BASE, Task(BACKWARD, 0, 0), 2, 0), "B0 of stage 0 at tick 2 needs B0 of stage 1, which is at tick 2."),
    (moved(BASE, Task(RECOMPUTE, 0, 0), 3, 0), "B0 of stage 0 at tick 3 needs R0 of stage 0, which is at tick 3."),
    (moved(BASE, Task(RECOMPUTE, 0, 1), 1, 0), "R1 of stage 0 at tick 1 needs F1 of stage 0, which is at tick 2."),
    (
        moved(BASE, Task(UPDATE, 1), 5, 1),
        "U of stage 1 at tick 5 is not after everything else, which ends with tick 5.",
    ),
]


@pytest.mark.parametrize(("made", "text"), WRONG)
def test_a_wrong_timetable_is_found_out(made: Timetable, text: str) -> None:
    with pytest.raises(TimetableError) as raised:
        check(made)
    assert text in raised.value.problems
    assert text in str(raised.value)


def test_importing_takes_neither_tensorflow_nor_jax() -> None:
    code = "import sys, ipu_tf.pipeline; print([m for m in ('tensorflow', 'jax', 'keras') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
