"""Runs Keras's own tests with and without an `IPUStrategy`'s scope around them, and counts the device's executions.

    python -m tests.helpers.keras_own_tests --backend jax trainers optimizers/adam_test.py

The tests lie in the installed package `keras`, whose wheel has them. `--keras` names a checkout of the same version:
then its `integration_tests` can be named too. Nothing of them is part of this repository. A row a folder or file:

    tests             stock   in scope    on device   seconds
    trainers            199        195          171   61 -> 140

`stock` counts tests that pass without the scope; `in scope` those of them that pass in it; `on device` those of these
that ran a program on the device. Below are the tests that only stock Keras passes, with the error's first line.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("trainers", "optimizers", "callbacks", "models", "saving", "losses", "metrics", "layers/rnn")
SECONDS = 3600


@dataclasses.dataclass(frozen=True)
class Row:
    """One test's result.

    Attributes:
        passed: whether it passed; a skipped test did not.
        executions: of programs on the device.
        error: the first line of what it raised.
    """

    passed: bool
    executions: int
    error: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options that `main` passes to the process that runs the tests."""
    parser.addoption("--rows", help="file that a line of JSON for each test is written to")
    parser.addoption("--in-scope", action="store_true", help="run each test in the scope of an IPUStrategy")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Writes the line of a test, once it has run or could not be set up."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.when != "call" and report.passed:
        return
    executions = item.stash.get(_EXECUTIONS, lambda: 0)()
    error = "" if report.passed or call.excinfo is None else _first_line(call.excinfo.value)
    row = Row(report.passed, executions, error)
    with open(item.config.getoption("--rows"), "a", encoding="utf-8") as rows:
        rows.write(json.dumps([item.nodeid, dataclasses.asdict(row)]) + "\n")


_EXECUTIONS: pytest.StashKey[Any] = pytest.StashKey()


@pytest.fixture(autouse=True)
def strategy_scope(request: pytest.FixtureRequest) -> Iterator[None]:
    """Enters the scope of a strategy for one IPU, where `--in-scope` is given."""
    if not request.config.getoption("--in-scope"):
        yield
        return
    from ipu_tf.device.counters import COUNTERS

    before = COUNTERS.read()
    request.node.stash[_EXECUTIONS] = lambda: COUNTERS.read().since(before).executions
    with _one_ipu().scope():
        yield


def _one_ipu() -> Any:
    import ipu_tf as ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy()


def _first_line(error: BaseException) -> str:
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text.strip()}"[:300]


def run(tests: pathlib.Path, backend: str, in_scope: bool, more: list[str]) -> tuple[dict[str, Row], float]:
    """Runs a folder or file of tests in a process of its own.

    Returns:
        The rows by name of the test, and the seconds.
    """
    checkout = next(folder for folder in tests.parents if folder.name in ("keras", "integration_tests")).parent
    while checkout.name == "src" or (checkout / "__init__.py").exists():
        checkout = checkout.parent
    with tempfile.TemporaryDirectory() as folder:
        rows = pathlib.Path(folder, "rows")
        rows.touch()
        command = [sys.executable, "-m", "pytest", "-p", "tests.helpers.keras_own_tests", f"--rows={rows}", *more]
        command += ["-p", "no:cacheprovider", "-c", "/dev/null", f"--rootdir={checkout}", "-n", "0", str(tests)]
        # The installed tests may want packages that are not installed.
        command += ["-q", "--continue-on-collection-errors"]
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603 - a command of this file
                command + ["--in-scope"] * in_scope,
                cwd=folder,
                env=_environment(backend, checkout),
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
        return {name.split("src/")[-1]: Row(**row) for name, row in lines}, time.monotonic() - began


def _environment(backend: str, checkout: pathlib.Path) -> dict[str, str]:
    import os

    ours = {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return os.environ | ours | {"PYTHONPATH": f"{ROOT}:{checkout}"}


def _compared(tests: pathlib.Path, name: str, backend: str, more: list[str]) -> list[str]:
    """Runs tests both ways, prints their row, and returns a line for each that only stock Keras passes."""
    stock, stock_seconds = run(tests, backend, False, more)
    scope, scope_seconds = run(tests, backend, True, more)
    lost = Row(False, 0, "the process ended before the test did")
    both = {test: scope.get(test, lost) for test, row in stock.items() if row.passed}
    passed = [row for row in both.values() if row.passed]
    used = sum(row.executions > 0 for row in passed)
    seconds = f"{stock_seconds:.0f} -> {scope_seconds:.0f}"
    print(f"{name:<40}{len(both):>6}{len(passed):>10}{used:>11}   {seconds}", flush=True)
    return [f"{test}\n    {row.error}" for test, row in both.items() if not row.passed]


def main() -> None:
    """Prints the table for the tests that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", default=FOLDERS, help="folders or files below keras/src")
    parser.add_argument("--keras", type=pathlib.Path, help="a checkout of Keras; default: the installed package")
    parser.add_argument("--backend", default="tensorflow", choices=("tensorflow", "jax"))
    parser.add_argument("-k", default="", help="as pytest's")
    given = parser.parse_args()
    failed: list[str] = []
    print(f"{'tests':<40}{'stock':>6}{'in scope':>10}{'on device':>11}   seconds")
    for name in given.tests:
        failed += _compared(_place(name, given.keras), name, given.backend, ["-k", given.k] if given.k else [])
    print("\n".join(["", "pass without the scope only:", *failed] if failed else []))


def _place(name: str, checkout: pathlib.Path | None) -> pathlib.Path:
    if checkout is None:
        import importlib.util

        spec = importlib.util.find_spec("keras")
        assert spec is not None and spec.origin is not None, "Keras is not installed."
        checkout = pathlib.Path(spec.origin).parents[1]
    below = checkout.resolve() if name.startswith("integration_tests") else checkout.resolve() / "keras" / "src"
    return below / name


if __name__ == "__main__":
    main()
