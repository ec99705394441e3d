"""Runs an application's own tests under the launcher.

Each file of them runs in a process of its own. A test that fails there runs once more in its own: those of vision/cnns
are run by `pytest-forked`, and leave Keras's dtype policy as they please.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from tests.helpers.graphcore_applications.application import Application
from tests.helpers.graphcore_applications.runs import environment_of


@dataclasses.dataclass(frozen=True)
class OwnTest:
    """A test, and what came of it.

    Attributes:
        file: its file, below the application's folder.
        name: `Class::test`, or `test`.
        outcome: "passed", "skipped", or the last line of its error.
    """

    file: str
    name: str
    outcome: str

    @property
    def failed(self) -> bool:
        """Whether it failed."""
        return self.outcome not in ("passed", "skipped")


def run_own_tests(checkout: Path, application: Application, tests: str) -> Iterator[list[OwnTest]]:
    """Runs the files `tests` of an application; yields the tests of each file.

    Args:
        checkout: of Graphcore's repository.
        application: whose tests they are.
        tests: a pattern of their files, below its folder.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "application"
        shutil.copytree(checkout / application.folder, folder)
        if application.data:
            subprocess.run([sys.executable, "-c", application.data], cwd=folder, check=True)
        environment = environment_of(Path(scratch), application, stock=None)
        environment["PYTHONPATH"] = f"{folder}:{environment['PYTHONPATH']}:{checkout / 'utils'}"
        for file in sorted(folder.glob(tests)):
            found = _run(folder, environment, str(file.relative_to(folder)))
            yield [_alone(folder, environment, test) if test.failed else test for test in found]


def _alone(folder: Path, environment: dict[str, str], test: OwnTest) -> OwnTest:
    return next(iter(_run(folder, environment, f"{test.file}::{test.name}")), test)


def _run(folder: Path, environment: dict[str, str], what: str) -> list[OwnTest]:
    """Runs a file, or a test of it; returns its tests."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:pytest_ipu", f"--junitxml={report}"]
    command = [sys.executable, "-m", "ipu_tf", "-m", "pytest", *options, what]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    file = what.partition("::")[0]
    if not report.exists():
        return [OwnTest(file, "", f"ends with {ran.returncode}: {ran.stderr[-300:]}")]
    return [_test(file, case) for case in ElementTree.parse(report).iter("testcase")]


def _test(file: str, case: ElementTree.Element) -> OwnTest:
    module = file.removesuffix(".py").replace(os.sep, ".")
    inner = case.get("classname", "").removeprefix(module).strip(".")
    name = "::".join(part for part in (inner, case.get("name", "")) if part)
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            lines = (found.text or found.get("message") or kind).strip().splitlines()
            return OwnTest(file, name, lines[-1][:200])
    return OwnTest(file, name, "passed" if case.find("skipped") is None else "skipped")
