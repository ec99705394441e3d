"""Runs Keras's own tests with and without an `IPUStrategy`'s scope around them, and counts the device's executions.

    python -m tests.helpers.keras_own_tests --backend jax trainers optimizers/adam_test.py

The tests lie in the installed package `keras`, whose wheel has them. `--keras` names a checkout of the same version:
then its `integration_tests` can be named too. Nothing of them is part of this repository. A row a folder or file:

    tests             stock   in scope   run models   on device   seconds
    trainers            207        198          145         145   61 -> 140

`stock` counts tests that pass without the scope; `in scope` those of them that pass in it; `run models` those of these
in which `fit`, `evaluate`, `predict` or their like for one batch returned; `on device` those of these that ran a
program on the device. Below are the tests that only stock Keras passes, with the error's first line, and the tests that
run models of which nothing was on the device.

`--failures` runs without the scope only what fails in it, which takes half of the time. Then `stock` counts the tests
that pass in the scope, and those that pass only without it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("trainers", "optimizers", "callbacks", "models", "saving", "losses", "metrics", "layers/rnn")
MODEL_RUNS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
TITLES = {"failed": "pass without the scope only:", "elsewhere": "run models, but nothing on the device:"}
SECONDS = 3600


@dataclasses.dataclass(frozen=True)
class Row:
    """One test's result.

    Attributes:
        passed: whether it passed; a skipped test did not.
        executions: of programs on the device.
        runs: how often `fit`, `evaluate`, `predict`, or their like for one batch, returned.
        error: the first line of what it raised.
    """

    passed: bool
    executions: int
    runs: int
    error: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options that `main` passes to the process that runs the tests."""
    parser.addoption("--rows", help="file that a line of JSON for each test is written to")
    parser.addoption("--in-scope", action="store_true", help="run each test in the scope of an IPUStrategy")
    parser.addoption("--only", help="file with the names of the tests to run; all, if not given")


def pytest_configure(config: pytest.Config) -> None:
    """Counts in Keras's own methods how often they return, for tests with and without the scope."""
    import keras

    config.stash[_MODEL_RUNS] = []
    for name in MODEL_RUNS:
        owner = next(kind for kind in keras.Model.__mro__ if name in vars(kind))
        setattr(owner, name, _counted(vars(owner)[name], config.stash[_MODEL_RUNS]))


def _counted(stock: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def method(*args: Any, **kwargs: Any) -> Any:
        returned = stock(*args, **kwargs)
        calls.append(stock.__name__)
        return returned

    return method


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests that `--only` names."""
    if config.getoption("--only"):
        names = set(pathlib.Path(config.getoption("--only")).read_text(encoding="utf-8").splitlines())
        items[:] = [item for item in items if item.nodeid in names]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Writes the line of a test, once it has run or could not be set up."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.when != "call" and report.passed:
        return
    executions = item.stash.get(_EXECUTIONS, lambda: 0)()
    error = "" if report.passed or call.excinfo is None else _first_line(call.excinfo.value)
    row = Row(report.passed, executions, len(item.config.stash[_MODEL_RUNS]), error)
    item.config.stash[_MODEL_RUNS].clear()
    with open(item.config.getoption("--rows"), "a", encoding="utf-8") as rows:
        rows.write(json.dumps([item.nodeid, dataclasses.asdict(row)]) + "\n")


_EXECUTIONS: pytest.StashKey[Any] = pytest.StashKey()
_MODEL_RUNS: pytest.StashKey[list[str]] = pytest.StashKey()


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


@dataclasses.dataclass(frozen=True)
class Tests:
    """Tests that one process runs.

    Attributes:
        path: their folder or file.
        backend: Keras's.
        more: further arguments of pytest.
    """

    path: pathlib.Path
    backend: str
    more: tuple[str, ...]


def run(tests: Tests, in_scope: bool, only: list[str] | None = None) -> tuple[dict[str, Row], float]:
    """Runs tests in a process of its own.

    Args:
        tests: the tests.
        in_scope: whether each runs in the scope of a strategy.
        only: names of those to run; None for all.

    Returns:
        The rows by name of the test, and the seconds.
    """
    if only == []:
        return {}, 0.0  # pytest fails where it runs no test
    checkout = next(folder for folder in tests.path.parents if folder.name in ("keras", "integration_tests")).parent
    while checkout.name == "src" or (checkout / "__init__.py").exists():
        checkout = checkout.parent
    with tempfile.TemporaryDirectory() as folder:
        rows, names = pathlib.Path(folder, "rows"), pathlib.Path(folder, "names")
        rows.touch()
        names.write_text("\n".join(only or []), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "tests.helpers.keras_own_tests", f"--rows={rows}", *tests.more]
        command += ["-p", "no:cacheprovider", "-c", "/dev/null", f"--rootdir={checkout}", "-n", "0", str(tests.path)]
        # The installed tests may want packages that are not installed.
        command += ["-q", "--continue-on-collection-errors"]
        command += ["--in-scope"] * in_scope + [f"--only={names}"] * (only is not None)
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            environment = _environment(tests.backend, checkout)
            ended = subprocess.run(  # noqa: S603 - a command of this file
                command, cwd=folder, env=environment, capture_output=True, timeout=SECONDS, check=False
            )
            if ended.returncode not in (0, 1):
                print(f"{tests.path}: pytest ended with {ended.returncode}; tests after that did not run", flush=True)
        lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
        return {name: Row(**row) for name, row in lines}, time.monotonic() - began


def _environment(backend: str, checkout: pathlib.Path) -> dict[str, str]:
    import os

    ours = {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return os.environ | ours | {"PYTHONPATH": f"{ROOT}:{checkout}"}


@dataclasses.dataclass
class Differences:
    """What differs in the scope: lines, two for each test.

    Attributes:
        failed: tests that pass without it only.
        elsewhere: tests that pass in it and run models, but nothing on the device.
    """

    failed: list[str] = dataclasses.field(default_factory=list)
    elsewhere: list[str] = dataclasses.field(default_factory=list)


def _compare(tests: Tests, name: str, failures: bool, differences: Differences) -> None:
    """Runs tests both ways, prints their row, and adds what differs."""
    scope, scope_seconds = run(tests, True)
    passed = [test for test, row in scope.items() if row.passed]
    only = [test for test in scope if test not in set(passed)] if failures else None
    stock, stock_seconds = run(tests, False, only)
    lost = Row(False, 0, 0, "the process ended before the test did")
    in_stock = [test for test, row in stock.items() if row.passed] + passed * failures
    both = {test: scope.get(test, lost) for test in in_stock}
    rows = [row for row in both.values() if row.passed]
    ran = [row for row in rows if row.runs]
    counts = f"{len(both):>6}{len(rows):>11}{len(ran):>13}{sum(row.executions > 0 for row in ran):>12}"
    print(f"{name:<40}{counts}   {stock_seconds:.0f} -> {scope_seconds:.0f}", flush=True)
    differences.failed += [f"{test}\n    {row.error}" for test, row in both.items() if not row.passed]
    differences.elsewhere += [test for test, row in both.items() if row.passed and row.runs and not row.executions]


def main() -> None:
    """Prints the table for the tests that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", default=FOLDERS, help="folders or files below keras/src")
    parser.add_argument("--keras", type=pathlib.Path, help="a checkout of Keras; default: the installed package")
    parser.add_argument("--backend", default="tensorflow", choices=("tensorflow", "jax"))
    parser.add_argument("-k", default="", help="as pytest's")
    parser.add_argument("--failures", action="store_true", help="run without the scope only what fails in it")
    given = parser.parse_args()
    differences = Differences()
    print(f"{'tests':<40}{'stock':>6}{'in scope':>11}{'run models':>13}{'on device':>12}   seconds")
    for name in given.tests:
        more = ("-k", given.k) if given.k else ()
        _compare(Tests(_place(name, given.keras), given.backend, more), name, given.failures, differences)
    for title, lines in vars(differences).items():
        print("\n".join(["", TITLES[title], *lines] if lines else []))


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
