"""Bubble and memory of devices, computed from a timetable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_tf.pipeline import (
    ALL_DEVICES,
    PipelineShape,
    Recomputation,
    Schedule,
    StageCosts,
    StageTimes,
    TaskKind,
    bubble,
    device_peaks,
    grouped,
    interleaved,
    moments,
    peak_stash,
    plan,
    schedule_table,
    sequential,
    stage_peaks,
    stage_reports,
    stage_table,
    stash,
    tick_lengths,
    timetable,
)

NONE, THEN, WITH = Recomputation
#: A stage of 1000 bytes of variables that keeps 10 bytes of input and 100 of activations, 30 of them checkpoints.
COSTS = StageCosts(
    flops=5.0,
    parameters=250,
    parameter_bytes=1000,
    input_bytes=10,
    activation_bytes=100,
    checkpoint_bytes=30,
    segment_bytes=40,
    training_bytes=2000,
    layers=("dense", "relu"),
)


@pytest.mark.parametrize(("stages", "count"), [(1, 1), (2, 2), (3, 9), (4, 8)])
def test_the_bubble_of_inference_is_the_textbook_s(stages: int, count: int) -> None:
    """(N - 1) / (M + N - 1) of all cells, for stages alike."""
    lost = bubble(grouped(PipelineShape(stages, training=False), count))
    assert lost.cell_share == pytest.approx((stages - 1) / (count + stages - 1))
    assert lost.time_share == pytest.approx(lost.cell_share)
    assert lost.cells == stages * (count + stages - 1)


@pytest.mark.parametrize(("stages", "count"), [(2, 3), (3, 1), (4, 2)])
def test_one_of_n_devices_works_if_sequential(stages: int, count: int) -> None:
    lost = bubble(sequential(PipelineShape(stages), count))
    assert lost.cell_share == pytest.approx(1 - 1 / stages)
    assert lost.time_share == pytest.approx(1 - 1 / stages)
    assert lost.time == 3 * stages * count


def test_grouped_waits_less_and_keeps_more_than_interleaved() -> None:
    """Grouped schedules wait less, interleaved ones stash less; backward passes take twice as long."""
    group, inter = grouped(PipelineShape(4), 32), interleaved(PipelineShape(4), 32)
    assert bubble(group).time_share < 0.2 < bubble(inter).time_share
    assert peak_stash(group) == (7, 5, 3, 1)
    assert peak_stash(inter) == (4, 3, 2, 1)
    # With passes of the same length interleaved devices need not wait for each other in the steady part.
    alike = [StageTimes(backward=1.0)] * 4
    steady = [tick_lengths(inter, alike)[tick] for tick in inter.phases.steady]
    assert set(steady) == {1.0}


def test_ticks_last_as_long_as_the_busiest_device() -> None:
    times = [StageTimes(forward=1.0, backward=3.0), StageTimes(forward=2.0, backward=2.5, update=0.5)]
    made = grouped(PipelineShape(2), 4)
    # F0 | F1, F0 | F2, B0 F1 | B0 F3, B1 F2 | B1, B2 F3 | B2, B3 | B3 | U
    assert tick_lengths(made, times) == (1.0, 2.0, 4.5, 4.5, 4.5, 3.0, 3.0, 0.5)
    lost = bubble(made, times)
    assert lost.time == 23.0
    assert lost.busy_time == 4 * (1 + 3) + 4 * (2 + 2.5) + 0.5
    assert lost.time_share == pytest.approx(1 - lost.busy_time / 46.0)
    assert lost.idle_cells == 2 and lost.cells == 14


def test_an_execution_of_no_time_has_no_bubble() -> None:
    assert bubble(sequential(PipelineShape(1), 1), [StageTimes(0.0, 0.0)]).time_share == 0.0


@given(
    st.sampled_from(Schedule),
    st.integers(1, 4),
    st.lists(st.tuples(st.floats(0.1, 5), st.floats(0.1, 5)), min_size=4, max_size=4),
)
def test_planned_tasks_fit_their_ticks(schedule: Schedule, stages: int, lengths: list[tuple[float, float]]) -> None:
    """Devices do one thing at a time, in their cell's order, within the tick; nothing starts before its needs end."""
    made = timetable(schedule, PipelineShape(stages), 2 * stages)
    times = [StageTimes(*pair) for pair in lengths[:stages]]
    planned = plan(made, times)
    assert [(one.task, one.tick, one.device) for one in planned] == [(p.task, p.tick, p.device) for p in made.placed()]
    free = [0.0] * made.devices
    for one in planned:
        assert one.start >= free[one.device] - 1e-9
        assert one.end - one.start == pytest.approx(times[one.task.stage].of(one.task))
        free[one.device] = one.end
    assert max(free) <= sum(tick_lengths(made, times)) + 1e-9


def test_stash_at_every_tick() -> None:
    """F0 | F1, F0 | F2, B0 F1 | B0 F3, B1 F2 | B1, B2 F3 | B2, B3 | B3 | U"""
    assert stash(grouped(PipelineShape(2), 4)) == (
        (1, 0),
        (2, 1),
        (3, 1),
        (3, 1),
        (2, 1),
        (1, 0),
        (0, 0),
        (0, 0),
    )


@pytest.mark.parametrize(
    ("recomputation", "wanted"),
    [
        # Stage 0 of 2 stashes three micro-batches, stage 1 one.
        (NONE, (3 * 110, 110)),
        # Of stage 0 three inputs with their checkpoints, and the rest of one: the next is recomputed after this one's
        # backward pass.
        (THEN, (3 * 40 + 70, 110)),
        # Only what lies between two checkpoints is there at once.
        (WITH, (3 * 40 + 40, 110)),
    ],
)
def test_peaks_of_a_grouped_pipeline(recomputation: Recomputation, wanted: tuple[int, int]) -> None:
    made = grouped(PipelineShape(2, recomputation=recomputation), 4)
    peaks = stage_peaks(made, [COSTS, COSTS])
    assert tuple(peak.stashed_bytes for peak in peaks) == wanted
    assert {peak.resident_bytes for peak in peaks} == {3000}
    assert tuple(peak.total_bytes for peak in peaks) == tuple(3000 + bytes_ for bytes_ in wanted)
    assert device_peaks(made, [COSTS, COSTS]) == peaks


def test_recomputation_saves_most_where_most_is_stashed() -> None:
    kept = stage_peaks(interleaved(PipelineShape(4), 8), [COSTS] * 4)
    saved = stage_peaks(interleaved(PipelineShape(4, recomputation=THEN), 8), [COSTS] * 4)
    less = [before.total_bytes - after.total_bytes for before, after in zip(kept, saved, strict=True)]
    assert less == sorted(less, reverse=True)
    assert less[0] > 0 and less[-1] == 0


def test_a_stage_without_checkpoints_recomputes_everything_at_once() -> None:
    plain = StageCosts(input_bytes=10, activation_bytes=100)
    made = sequential(PipelineShape(2, recomputation=WITH), 1)
    assert [peak.stashed_bytes for peak in stage_peaks(made, [plain, plain])] == [110, 110]


def test_peaks_of_inference() -> None:
    """Only the input of the pass that runs, and no optimizer."""
    made = grouped(PipelineShape(2, training=False), 2)
    assert [(peak.resident_bytes, peak.stashed_bytes) for peak in device_peaks(made, [COSTS] * 2)] == [(1000, 10)] * 2


def test_the_peaks_of_stages_that_share_a_device_meet_at_one_moment() -> None:
    """0 and 2 of 3 stages on IPU 0: five micro-batches of stage 0 and one of stage 2."""
    peaks = device_peaks(grouped(PipelineShape(3, device_mapping=(0, 1, 0)), 6), [COSTS] * 3)
    assert [peak.resident_bytes for peak in peaks] == [6000, 3000]
    assert [peak.stashed_bytes for peak in peaks] == [6 * 110, 3 * 110]
    # If sequential, stage 2 has finished before stage 0 is done: one each, at tick 2.
    (peak, _) = device_peaks(sequential(PipelineShape(3, device_mapping=(0, 1, 0)), 2), [COSTS] * 3)
    assert (peak.stashed_bytes, peak.tick) == (220, 2)


def test_a_stage_on_all_devices_is_spread_over_them() -> None:
    made = sequential(PipelineShape(2, device_mapping=(1, ALL_DEVICES)), 1)
    costs = [StageCosts(parameter_bytes=100, activation_bytes=4), StageCosts(parameter_bytes=7, activation_bytes=5)]
    first, second = device_peaks(made, costs)
    assert (first.resident_bytes, first.stashed_bytes) == (4, 3)
    assert (second.resident_bytes, second.stashed_bytes) == (104, 7)
    assert [peak.stashed_bytes for peak in stage_peaks(made, costs)] == [4, 5]


@given(st.sampled_from(Schedule), st.integers(1, 4), st.integers(1, 2))
def test_moments_agree_with_the_stash(schedule: Schedule, stages: int, blocks: int) -> None:
    """Two ways of counting: what devices hold while they work, and what is left when ticks end."""
    made = timetable(schedule, PipelineShape(stages), blocks * 2 * stages)
    ends = stash(made)
    for moment in moments(made):
        stage = moment.task.stage
        before = ends[moment.tick - 1][stage] if moment.tick else 0
        assert moment.held[stage] in {before, ends[moment.tick][stage]}
        assert moment.whole[stage] == moment.held[stage] > 0
        assert all(held == 0 for other, held in enumerate(moment.held) if other != stage)
    assert {moment.task.kind for moment in moments(made)} == {TaskKind.FORWARD, TaskKind.BACKWARD}


def test_the_report_of_each_stage() -> None:
    made = interleaved(PipelineShape(2, recomputation=THEN), 4)
    small = StageCosts(flops=15.0, parameters=2_500_000, parameter_bytes=4 << 20, activation_bytes=8)
    first, second = stage_reports(made, [COSTS, small])
    assert (first.devices, first.layers, first.parameters) == ((0,), ("dense", "relu"), 250)
    assert (first.flops_share, second.flops_share) == (0.25, 0.75)
    assert (first.stashed, second.stashed) == (2, 1)
    assert (first.recomputed, second.recomputed) == (4, 0)
    assert first.peak == stage_peaks(made, [COSTS, small])[0]
    assert stage_table([first, second]) == (
        "stage  IPU  layers  parameters  FLOPs  stashed  recomputed  resident  activations     peak\n"
        "0      0         2         250  25.0%        2           4   2.9 KiB        150 B  3.1 KiB\n"
        "1      1         0       2.5 M  75.0%        1           0   4.0 MiB          8 B  4.0 MiB"
    )


def test_schedules_side_by_side() -> None:
    shape = PipelineShape(2)
    made = [grouped(shape, 4), interleaved(shape, 4), sequential(shape, 4)]
    assert schedule_table(made) == (
        "schedule     ticks  time  idle cells  idle time  stash of each stage\n"
        "grouped          8    15       14.3%      20.0%                  3 1\n"
        "interleaved     11    18       20.0%      33.3%                  2 1\n"
        "sequential      17    24       50.0%      50.0%                  1 1"
    )


def test_costs_and_times_are_given_for_each_stage() -> None:
    made = sequential(PipelineShape(2), 1)
    with pytest.raises(ValueError, match="There must be times for each of the 2 stages. Received: 1."):
        bubble(made, [StageTimes()])
    with pytest.raises(ValueError, match="There must be costs for each of the 2 stages. Received: 3."):
        stage_peaks(made, [COSTS] * 3)
    with pytest.raises(ValueError, match="There must be costs for each of the 2 stages. Received: 1."):
        stage_reports(made, [COSTS])
