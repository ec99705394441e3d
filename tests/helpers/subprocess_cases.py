"""Runs tests in a process with an environment of its own; each case is a test of its own in this process as well.

A test module lists files of tests, and has a parametrised test that reports the result of each of their cases:

    def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
        parametrize_cases(metafunc, FILES)

    @pytest.fixture(scope="module")
    def results(request: pytest.FixtureRequest) -> Results:
        return run_cases(request, environment={...})

    def test_case_with_keras_on_jax(case: str, results: Results) -> None:
        results.check(case)

The process runs the selected cases alone (`-k`, `::`), all of them at once.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FILE = "IPU_TEST_RESULTS"
_CASE = "case"
#: Options of a process with Keras on JAX, which makes arrays of its variables in a way that NumPy 2 no longer likes.
KERAS_ON_JAX = ("-W", "ignore:__array__ implementation:DeprecationWarning")


@dataclasses.dataclass(frozen=True)
class Results:
    """Results of the cases that ran in the other process.

    Attributes:
        outcomes: by node id of the case: "passed", "failed" or "skipped", and the text of the report.
        status: exit status of the process; 0 or 1 unless something other than a test failed.
        output: of the process.
    """

    outcomes: Mapping[str, tuple[str, str]]
    status: int
    output: str

    def check(self, case: str) -> None:
        """Passes, fails or skips the running test as the case did in the other process."""
        outcome, text = self.outcomes.get(case, ("failed", f"The case did not run.\n{self.output[-8000:]}"))
        if outcome == "skipped":
            pytest.skip(text)
        if outcome == "failed":
            pytest.fail(text, pytrace=False)
        assert self.status in (0, 1), self.output[-8000:]


def parametrize_cases(
    metafunc: pytest.Metafunc, files: Iterable[str], thinned: Iterable[str] = (), sampled: Iterable[str] = ()
) -> None:
    """Parametrises a test that has an argument `case` with the node ids of all cases in some files.

    Args:
        metafunc: of the test.
        files: all of their cases.
        thinned: files whose tests with parameters have two cases, of their first and their last; the others are `slow`.
            For tests whose parameters differ little.
        sampled: files whose tests with parameters have one case, of their last; the others are `slow`. For tests that
            run with all of their parameters elsewhere.
    """
    if _CASE in metafunc.fixturenames:
        cases = [case for file in files for case in _cases(metafunc, ROOT / file)]
        cases += [case for file in thinned for case in _thinned(_cases(metafunc, ROOT / file), (0, -1))]
        cases += [case for file in sampled for case in _thinned(_cases(metafunc, ROOT / file), (-1,))]
        metafunc.parametrize(_CASE, [case.parameter() for case in cases])


@dataclasses.dataclass(frozen=True)
class _Case:
    """A case: its node id, the name of the test that reports it, and whether it is slow."""

    node: str
    name: str
    slow: bool

    @property
    def test(self) -> str:
        """The node id without parameters."""
        return self.node.split("[", maxsplit=1)[0]

    def parameter(self) -> object:
        """The parameter of the test that reports the case."""
        return pytest.param(self.node, marks=[pytest.mark.slow] if self.slow else [], id=self.name)


def _thinned(cases: Iterable[_Case], kept: tuple[int, ...]) -> Iterator[_Case]:
    """The cases; of each test all but those at some places are slow."""
    for _, group in itertools.groupby(cases, lambda case: case.test):
        of_test = list(group)
        for place, case in enumerate(of_test):
            here = place in kept or place - len(of_test) in kept
            yield case if here else dataclasses.replace(case, slow=True)


def _cases(metafunc: pytest.Metafunc, path: Path) -> Iterator[_Case]:
    parent = metafunc.definition.getparent(pytest.Module)
    assert parent is not None
    module = pytest.Module.from_parent(parent.parent, path=path)
    for item in module.collect():
        assert isinstance(item, pytest.Function), f"Only functions are cases. Received: {item}"
        slow = any(mark.name == "slow" for mark in item.iter_markers())
        yield _Case(f"{path.relative_to(ROOT).as_posix()}::{item.name}", f"{path.stem}-{item.name}", slow)


def run_cases(
    request: pytest.FixtureRequest,
    environment: Mapping[str, str],
    options: Iterable[str] = (),
    always: Iterable[str] = (),
    timeout: float = 1800,
) -> Results:
    """Runs the selected cases of the module that requests it in another process.

    Args:
        request: of a module's fixture.
        environment: variables that the process has beside those of this one.
        options: further options of pytest.
        always: node ids of cases that run even if they are not selected.
        timeout: in seconds.
    """
    folder: Path = request.getfixturevalue("tmp_path_factory").mktemp("cases")
    chosen = list(dict.fromkeys([*always, *_selected(request)]))
    plugin = ["-p", __name__, "-p", "no:cacheprovider", "-m", ""]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, *options, *chosen]
    env = {**os.environ, _FILE: str(folder / "results.json"), **environment}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=timeout)
    found = folder / "results.json"
    outcomes = json.loads(found.read_text()) if found.exists() else {}
    return Results(
        {name: (how, text) for name, (how, text) in outcomes.items()}, ran.returncode, ran.stdout + ran.stderr
    )


def _selected(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yields the selected cases; of a fixture with parameters those that are wanted with its present one."""
    present = getattr(request, "param", None)
    for item in request.session.items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        same = parameters.get(str(request.fixturename)) == present
        if item.path == request.path and _CASE in parameters and same:
            yield str(parameters[_CASE])


class _Recorder:
    """Plugin of the other process: writes the outcome of each case to a file."""

    def __init__(self) -> None:
        self._outcomes: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Records a report; a failure of a fixture counts as one of its case."""
        if report.failed or report.skipped or (report.when == "call" and report.nodeid not in self._outcomes):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            self._outcomes[report.nodeid] = (report.outcome, reason)

    def pytest_sessionfinish(self) -> None:
        """Writes the file."""
        Path(os.environ[_FILE]).write_text(json.dumps(self._outcomes))


def pytest_configure(config: pytest.Config) -> None:
    """Installs the plugin where this module is loaded by `-p`."""
    config.pluginmanager.register(_Recorder(), "subprocess cases")
