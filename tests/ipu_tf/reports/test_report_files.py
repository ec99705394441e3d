"""Reports as files: they come back equal, damage is refused; `autoReport` and `--report` write them."""

from __future__ import annotations

import datetime
import gc
import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._compat import launcher
from ipu_tf.device.cache.sealed_file import write_sealed
from ipu_tf.device.memory import hidden_state
from ipu_tf.device.run.interruptible_function import InterruptibleFunction
from ipu_tf.device.run.last_program import last_program
from ipu_tf.reports import Category, Report, auto, build, comparison
from ipu_tf.reports.codec import decode, encode
from tests.helpers.device_counts import device_work

FILES = {"profile.pop", "report.html", "framework.json"}
SCRIPT = """\
import tensorflow as tf
import ipu_tf as ipu
if {configures}:
    ipu.config.IPUConfig().configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()
function = tf.function(lambda x: tf.reduce_sum(x * x))
for _ in range(3):
    print(float(strategy.run(function, args=[tf.ones([8])])))
"""


def run(elements: int = 8) -> tf.types.experimental.GenericFunction:
    """A function that the device ran once, to be kept."""
    function = tf.function(lambda x: tf.reduce_sum(x * x))
    with device_work() as work:
        assert float(ipu.ipu_strategy.IPUStrategy().run(function, args=[tf.ones([elements])])) == elements
    assert work.counts.executions == 1
    return function


def configure(directory: Path, **options: str) -> None:
    """Configures a system that writes reports."""
    config = ipu.config.IPUConfig()
    config.compilation_poplar_options = {"autoReport.directory": str(directory)} | {
        f"autoReport.{name}": value for name, value in options.items()
    }
    config.configure_ipu_system()


def reported() -> Report:
    """A report."""
    ipu.config.IPUConfig().configure_ipu_system()
    kept = run()
    report = ipu.reports.last()
    del kept
    return report


def test_a_report_comes_back_equal(tmp_path: Path) -> None:
    report = reported()
    ipu.reports.save(report, tmp_path / "profile.pop")
    assert ipu.reports.load(tmp_path / "profile.pop") == report
    assert [path.name for path in tmp_path.iterdir()] == ["profile.pop"]


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (Mapping[int, str], {1: "one", 2: "two"}),
        (Mapping[int, str], {}),
        (Mapping[str, float], {"one": 1.0}),
        (Mapping[Category, int], {Category.STATE: 3}),
        (range, range(2, 9)),
        (range, range(9, 2, -3)),
    ],
    ids=repr,
)
def test_values_come_back_from_json(wanted: Any, value: Any) -> None:
    assert decode(wanted, json.loads(json.dumps(encode(value)))) == value


@pytest.mark.parametrize(("wanted", "data"), [(range, [1]), (range, [1, 2, 0]), (Mapping[int, int], [[1]])], ids=repr)
def test_json_of_another_type_is_refused(wanted: Any, data: Any) -> None:
    with pytest.raises(ValueError, match=r"Expected|must not be zero"):
        decode(wanted, data)


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "profile.pop"
    ipu.reports.save(reported(), path)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ValueError, match="profile.pop' is damaged"):
        ipu.reports.load(path)
    path.write_bytes(b"\x08what Poplar wrote")
    with pytest.raises(
        ValueError, match="must be a report of ipu_tf. Received: another file. Reports that Poplar wrote"
    ):
        ipu.reports.load(path)
    with pytest.raises(FileNotFoundError):
        ipu.reports.load(tmp_path / "none.pop")


@pytest.mark.parametrize(
    "text", ["[]", "[1,2,[],[],null]", '["name",1,{},[],null]', '["name",1,[[]],[],null]', "[" * 9999]
)
def test_what_is_no_report_is_refused_whatever_its_checksum(text: str, tmp_path: Path) -> None:
    write_sealed(tmp_path / "forged", "report", zlib.compress(text.encode()))
    with pytest.raises(ValueError, match="is damaged: it is no report"):
        ipu.reports.load(tmp_path / "forged")


@pytest.mark.parametrize(
    "options", [{"all": "true"}, {"outputGraphProfile": "true"}, {"outputExecutionProfile": "TRUE"}]
)
def test_each_compiled_program_gets_a_folder(options: dict[str, str], tmp_path: Path) -> None:
    configure(tmp_path / "r", **options)
    kept = [run(8), run(16)]
    folders = sorted((tmp_path / "r").iterdir())
    assert len(folders) == len(kept)
    for folder in folders:
        assert re.fullmatch(rf"tf_report__\d{{4}}-\d\d-\d\dT[\d:.]+__{os.getpid()}", folder.name)
        assert {path.name for path in folder.iterdir()} == FILES
        assert json.loads((folder / "framework.json").read_text())["pid"] == os.getpid()
    first, second = (ipu.reports.load(folder / "profile.pop") for folder in folders)
    assert second.peak > first.peak
    assert second == ipu.reports.last()
    assert (folders[0] / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_without_a_switch_nothing_is_written(tmp_path: Path) -> None:
    configure(tmp_path / "r", all="false")
    run()
    assert not (tmp_path / "r").exists()
    configure(tmp_path / "r", all="true")
    ipu.config.reset_ipu_configuration()
    ipu.config.IPUConfig().configure_ipu_system()
    run()
    assert list((tmp_path / "r").iterdir()) == []


@pytest.mark.filterwarnings("ignore:compilation_poplar_options has 'autoReport.al'")  # said before the error
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"autoReport.al": "true"}, r"must have options among autoReport.all, .* Received: autoReport.al\."),
        ({"autoReport.all": "yes"}, r"autoReport.all must be 'true' or 'false'. Received: 'yes'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], message: str) -> None:
    config = ipu.config.IPUConfig()
    config.compilation_poplar_options = options
    with pytest.raises(ValueError, match=message):
        config.configure_ipu_system()


@pytest.mark.parametrize("folder", ["file", "file/r", "/proc", "/proc/none/r"])
def test_a_directory_that_cannot_be_written_to_is_refused(folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = rf"autoReport.directory must be a folder to write in. Received: '.*{folder}' \(\w.*\)"
    with pytest.raises(OSError, match=said):
        configure(tmp_path / folder, all="true")


def test_a_report_that_fails_ends_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, all="true")

    def fails(*given: object) -> None:
        raise RuntimeError("no report today")

    monkeypatch.setattr("ipu_tf.reports.auto.report_of", fails)
    with pytest.warns(RuntimeWarning, match="No report was written to .*RuntimeError: no report today"):
        run()


def test_a_folder_that_cannot_be_made_ends_no_program(tmp_path: Path) -> None:
    configure(tmp_path / "r", all="true")
    (tmp_path / "r").rmdir()
    with pytest.warns(RuntimeWarning, match="No report was written to '.*r': FileNotFoundError"):
        run()


def test_programs_that_are_compiled_at_the_same_time_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = datetime.datetime(2020, 1, 1)
    times = iter([first, first, first + datetime.timedelta(seconds=1)])

    class Clock(datetime.datetime):
        """A clock that stands still once."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            """The next of the times."""
            return next(times)

    configure(tmp_path, all="true")
    monkeypatch.setattr("ipu_tf.reports.auto.datetime.datetime", Clock)
    kept = [run(8), run(16)]
    assert len([path for path in tmp_path.iterdir() if (path / "profile.pop").exists()]) == len(kept)


def test_programs_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    configure(tmp_path, all="true")
    for elements in (8, 16, 24):
        run(elements)
        gc.collect()
    assert len(list(tmp_path.iterdir())) == 3
    assert len(auto._written) == 1


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Path]:
    """A page that is asked for."""
    auto.use(auto.AutoReport(page=tmp_path / "page.html"))
    yield tmp_path / "page.html"
    auto.use(auto.AutoReport())


def test_it_is_said_that_there_is_no_page_where_no_program_ran(page: Path) -> None:
    with pytest.warns(RuntimeWarning, match=f"No report was written to '{page}': .* ran no program"):
        auto._finish()
    assert not page.exists()


def test_the_page_is_on_the_program_that_took_most_of_the_time_even_if_it_is_gone(page: Path) -> None:
    ipu.config.IPUConfig().configure_ipu_system()

    def short(x: tf.Tensor) -> tf.Tensor:
        return x + x

    def longest(x: tf.Tensor) -> tf.Tensor:
        return x * x

    def late(x: tf.Tensor) -> tf.Tensor:
        return x - x

    for function in (short, longest, late):
        compiled = tf.function(function)
        for _ in range(2):
            ipu.ipu_strategy.IPUStrategy().run(compiled, args=[tf.ones([8])])
            last = last_program()
            assert last is not None
            last[1].seconds += 1000.0 if function is longest else 0.0
            del last
        del compiled
        gc.collect()
    with pytest.raises(LookupError):
        ipu.reports.last()
    auto._finish()
    assert re.findall("<h1>(.*?)</h1>", page.read_text()) == ["longest"]


@pytest.mark.parametrize("text", ["{autoReport.all: true}", "{debug.allowOutOfMemory: false}", "none", '["prng.seed"]'])
def test_text_that_is_no_json_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ipu.config.reset_ipu_configuration()
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    with pytest.raises(ValueError, match="POPLAR_ENGINE_OPTIONS must be a JSON object"):
        ipu.config.IPUConfig().configure_ipu_system()


def test_the_environment_and_the_launcher_write_reports_with_all_executions(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(configures=True))
    options = json.dumps({"autoReport.all": "true", "autoReport.directory": "./r"})
    ran = subprocess.run(
        [sys.executable, "-m", "ipu_tf", "--report", "out.html", "script.py"],
        cwd=tmp_path,
        env={**os.environ, "POPLAR_ENGINE_OPTIONS": options, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["8.0"] * 3
    [folder] = (tmp_path / "r").iterdir()
    report = ipu.reports.load(folder / "profile.pop")
    assert report.measured is not None and report.measured.executions == 3
    assert "executed: 3 times" in (tmp_path / "out.html").read_text()


@pytest.mark.parametrize("value", ["none/out.html", "."])
def test_the_launcher_refuses_a_page_that_it_cannot_write(value: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    ran = subprocess.run(
        [sys.executable, "-m", "ipu_tf", "--report", value, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2
    assert "--report must be a file in a folder that there is" in ran.stderr


def fails_to_compile(broken: pytest.MonkeyPatch) -> None:
    """Runs a program that XLA refuses, after JAX compiled a copy for it."""
    initial = hidden_state.initial

    def refuse(self: InterruptibleFunction, lowered: Any) -> None:
        raise RuntimeError("XLA is out of memory\nmore")

    def copied(*given: Any) -> Any:
        jax.jit(lambda x: x + 1)(1.0)
        return initial(*given)

    broken.setattr(InterruptibleFunction, "_compile_it", refuse)
    broken.setattr(hidden_state, "initial", copied)
    with pytest.raises(RuntimeError, match="XLA is out of memory"):
        run()


def test_a_program_that_fails_while_it_is_compiled_has_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, all="true")
    with monkeypatch.context() as broken:
        fails_to_compile(broken)
    [folder] = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == FILES
    report = ipu.reports.load(folder / "profile.pop")
    assert report.measured is not None and report.measured.failed == "RuntimeError: XLA is out of memory"
    assert report.parts[0].operations and report.measured.executions == 0
    text = str(report)
    assert "failed while it was compiled: RuntimeError: XLA is out of memory" in text
    assert "it came as far as: JAX's trace" in text and "lowering" in text and "XLA 0" not in text
    assert "XLA is out of memory" in (folder / "report.html").read_text()


def test_the_page_is_on_the_program_that_failed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ipu.config.IPUConfig().configure_ipu_system()
    kept = run(16)
    with monkeypatch.context() as broken:
        fails_to_compile(broken)
    assert "XLA is out of memory" in page.read_text()
    kept = run(24)
    auto._finish()
    assert "XLA is out of memory" in page.read_text()
    del kept


def test_a_part_that_cannot_be_traced_ends_the_report_on_a_failure_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TypeError("no such thing")

    ipu.config.IPUConfig().configure_ipu_system()
    kept = run()
    found = last_program()
    assert found is not None
    monkeypatch.setattr(build, "_part", refuse)
    report = ipu.reports.report_of(*found, failed="TypeError: no such thing")
    assert [part.kind for part in report.parts] == ["part that cannot be traced"]
    with pytest.raises(TypeError):
        ipu.reports.report_of(*found)
    del kept


def test_what_an_execution_raises_is_no_failed_compilation(tmp_path: Path) -> None:
    configure(tmp_path, all="true")

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_positive(x)
        return tf.reduce_sum(x)

    with pytest.raises(tf.errors.InvalidArgumentError):
        ipu.ipu_strategy.IPUStrategy().run(function, args=[-tf.ones([4])])
    assert not list(tmp_path.iterdir())


def test_compared_reports_say_what_grew(tmp_path: Path) -> None:
    reports = []
    ipu.config.IPUConfig().configure_ipu_system()
    for elements in (8, 24):
        kept = run(elements)
        reports.append(ipu.reports.last())
        del kept
    small, large = reports
    peak, *others = ipu.reports.compared(small, large)
    assert (peak.what, peak.before, peak.after) == ("peak", small.peak, large.peak) and peak.growth > 0
    categories = {each.name: each.growth for each in others if each.what == "category at the peak"}
    assert sum(categories.values()) == peak.growth
    values = [each for each in others if each.what == "value at the peak"]
    assert sum(each.growth for each in values) == peak.growth
    layers = [each for each in others if each.what == "layer"]
    flops = [sum(e.flops for part in report.parts for e in part.operations) for report in reports]
    assert sum(each.growth for each in layers) == flops[1] - flops[0]
    assert [each.growth for each in ipu.reports.compared(large, large)] == [0]
    assert ipu.reports.compared(large, small)[0].texts()[4].startswith("-")
    ipu.reports.write_page(large, tmp_path / "page.html", compare=small)
    page = (tmp_path / "page.html").read_text()
    assert "What grew since the older report on" in page and "value at the peak" in page
    ipu.reports.write_page(large, tmp_path / "page.html")
    assert "What grew" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"a/kernel": 4, "b": 1}, {"a_1/kernel": 6, "b_1": 1}, [("a/kernel", 2)]),
        ({"a/x": 4, "a/y": 1, "seed": 1}, {"a_1/x": 5, "a_1/y": 1, "seed": 1}, [("a/x", 1)]),
        ({"a_1": 4, "a_2": 1}, {"a_1": 4, "a_2": 3}, [("a_2", 2)]),
        ({"a/a_kernel": 4}, {"a_2/a_2_kernel_1": 1}, [("a/a_kernel", -3)]),
    ],
)
def test_models_of_one_process_are_compared_without_their_numbers(
    before: dict[str, float], after: dict[str, float], said: list[tuple[str, float]]
) -> None:
    assert [(each.name, each.growth) for each in comparison._changes("layer", before, after)] == said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--compare", "old.pop"], "--compare wants a page that it is shown on: --report FILE"),
        (["--report", "out.html", "--compare", "none.pop"], "--compare must be a report such as profile.pop"),
        (["--report", "out.html", "--compare", "script.py"], "must be a report of ipu_tf"),
    ],
)
def test_a_comparison_with_nothing_is_refused(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("print(1)")
    monkeypatch.setattr(launcher, "_run", lambda *_: pytest.fail("the program ran"))
    monkeypatch.setattr(launcher, "prepare", lambda *_: None)
    monkeypatch.setattr(launcher, "shorten_tracebacks", lambda *_: None)
    monkeypatch.setattr(launcher.environment, "enable_aliases_in_children", lambda *_: None)
    with pytest.raises(SystemExit):
        launcher.main([*options, "script.py"])
    assert said in capsys.readouterr().err
