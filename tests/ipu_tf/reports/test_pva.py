"""`pva` on reports of an emulated IPU: programs of others that add up tiles and steps get the report's bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import pva
from ipu_tf.emulation import EmulationError
from ipu_tf.reports import Category
from ipu_tf.test_utils import ReportHelper
from tests.helpers.device_counts import device_work

UNANSWERED = (
    "execution.totalCycles",
    "execution.runs[0].cycles",
    "compilation.computeSets",
    "compilation.graph",
    "compilation.tiles[0].memory.category",
    "compilation.tiles[0].memory.vertices",
    "compilation.loweredVariables",
    "instrumentationSettings",
)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a report on a loop that trains."""
    path = tmp_path_factory.mktemp("reports") / "profile.pop"
    ipu.config.IPUConfig().configure_ipu_system()
    x = np.ones((32, 8), np.float32)
    with ipu.ipu_strategy.IPUStrategy().scope(), device_work() as work:
        model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])
        model.compile("adam", "mse", steps_per_execution=4)
        model.fit(x, x[:, :1], batch_size=8, verbose=0)
    assert work.counts.executions == 1
    ipu.reports.save(model.ipu_report(), path)
    return path


def test_what_a_terminal_shows_of_them_is_a_line(profile: Path) -> None:
    report, opened = ipu.reports.load(profile), pva.openReport(str(profile))
    timetable = ipu.pipeline.grouped(ipu.pipeline.PipelineShape(16), 64)
    picture = ipu.pipeline.TimetablePicture(timetable)
    for shown in (report, report.parts[0], timetable, picture, opened, opened.compilation):
        assert len(repr(shown)) < 800 and "\n" not in repr(shown)
    assert "target" in repr(opened.compilation) and "numIPUs=1" in repr(opened.compilation.target)


def test_always_live_and_the_most_beside_it_are_the_peak(profile: Path) -> None:
    report, opened = ipu.reports.load(profile), pva.openReport(str(profile))
    steps = opened.compilation.livenessProgramSteps
    always = sum(tile.memory.alwaysLiveBytes for tile in opened.compilation.tiles)
    variables = {each.name: each.size for each in opened.compilation.alwaysLiveVariables}
    assert always == sum(variables.values())
    [part] = report.parts
    trained = {each.name: each.bytes for each in part.values if each.first == 0 and each.category is Category.WEIGHTS}
    assert len(trained) == 4 and trained.items() <= variables.items()  # of each the old value, then the new one
    slots = sum(each.bytes for each in part.values if each.first == 0 and each.category is Category.OPTIMIZER)
    assert always >= sum(trained.values()) + slots - 12  # but for Adam's count and rate
    assert always + max(step.notAlwaysLiveMemory.bytes for step in steps) == report.peak
    assert always + opened.compilation.tiles[0].memory.notAlwaysLiveBytes == report.peak
    assert opened.compilation.ipus[0].tiles[0].memory.total.excludingGaps == report.peak
    assert opened.compilation.alwaysLiveVariablesForTile(0) == opened.compilation.alwaysLiveVariables


def test_variables_of_each_step_add_up(profile: Path) -> None:
    opened = pva.openReport(profile)
    for step in opened.compilation.livenessProgramSteps:
        assert sum(each.size for each in step.notAlwaysLiveMemory.variables) == step.notAlwaysLiveMemory.bytes
        assert step.notAlwaysLiveMemoryForTile(0).bytes == step.notAlwaysLiveMemory.bytes
    with pytest.raises(IndexError, match="one tile"):
        opened.compilation.alwaysLiveVariablesForTile(1)


def test_visitors_see_each_program(profile: Path) -> None:
    class Names(pva.ProgramVisitor):
        def __init__(self) -> None:
            self.found: list[str] = []

        def visitOnTileExecute(self, program: Any) -> None:  # noqa: N802 - pva's name
            assert program.type == pva.Program.Type.OnTileExecute
            self.found.append(program.name)

    names, opened = Names(), pva.openReport(profile)
    for program in opened.compilation.programs:
        program.accept(names)
    [part] = ipu.reports.load(profile).parts
    assert names.found == [each.name for each in part.operations if not each.body]
    assert any("dense" in name for name in names.found)


def test_the_machine_and_its_version_are_emulated(profile: Path) -> None:
    opened = pva.openReport(profile)
    assert "emulated" in opened.poplarVersion.string
    target = opened.compilation.target
    assert (target.numIPUs, target.tilesPerIpu, target.bytesPerIPU) == (1, 1, 1472 * 624 * 1024)
    [run] = opened.execution.runs
    assert len(run.steps) == len(opened.compilation.programs)


@pytest.mark.parametrize("name", UNANSWERED)
def test_what_only_poplar_knows_is_named(name: str, profile: Path) -> None:
    opened = pva.openReport(profile)
    *way, last = name.split(".")
    for each in way:
        attribute, _, index = each.rstrip("]").partition("[")
        opened = getattr(opened, attribute)
        opened = opened[int(index)] if index else opened
    with pytest.raises(EmulationError, match=rf"pva: report\..*{last} is not emulated"):
        getattr(opened, last)


def test_files_of_poplar_are_refused(tmp_path: Path) -> None:
    (tmp_path / "profile.pop").write_bytes(b"SQLite format 3\0")
    with pytest.raises(ValueError, match="Reports that Poplar wrote are about IPU hardware"):
        pva.openReport(tmp_path / "profile.pop")


def test_graphcores_helper_finds_reports_that_can_be_opened() -> None:
    helper, config = ReportHelper(), ipu.config.IPUConfig()
    helper.set_autoreport_options(config)
    config.configure_ipu_system()
    function = tf.function(lambda x: tf.reduce_sum(x * x))
    assert float(ipu.ipu_strategy.IPUStrategy().run(function, args=[tf.ones([8])])) == 8.0
    assert pva.openReport(helper.find_report()).compilation.livenessProgramSteps
    helper.clear_reports()
    assert helper.find_reports() == []
