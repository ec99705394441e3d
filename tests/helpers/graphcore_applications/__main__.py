"""The command line: see the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.helpers.graphcore_applications.compared import COMPARED, compare
from tests.helpers.graphcore_applications.own_tests import run_own_tests
from tests.helpers.graphcore_applications.runs import run
from tests.helpers.graphcore_applications.table import APPLICATIONS

HEAD = "| application | command of its README | result |\n|---|---|---|"
COMPARED_HEAD = (
    "| application | sizes | losses on the device | in stock TensorFlow | compared | greatest relative difference |\n"
    "|---|---|---|---|---|---|"
)


def line(checkout: Path, name: str) -> tuple[bool, str]:
    """Runs an application; returns whether it ran to its end, and its line of the table."""
    application = APPLICATIONS[name]
    done = run(checkout, application)
    result = done.result()
    if not done.whole:
        print(done.text[-3000:], file=sys.stderr)
    keras_2 = "Keras 2; " if application.keras_2 else ""
    return done.whole, f"| {application.title} | `{application.command}` | {keras_2}{result} |"


def compared_line(checkout: Path, name: str) -> tuple[bool, str]:
    """Runs an application with and without the device; returns whether they agree, and its line of the table."""
    comparison = COMPARED[name]
    result = compare(checkout, comparison)
    if not result.agrees:
        print(f"{result.device.text[-3000:]}\n--- stock:\n{result.stock.text[-3000:]}", file=sys.stderr)
    application = comparison.application
    return result.agrees, f"| {application.title}, {name} | {application.sizes or application.command} | {result} |"


def own_tests(checkout: Path, names: list[str]) -> bool:
    """Runs the own tests of vision/cnns, or some files of them; prints a line for each; returns whether all passed."""
    whole = True
    for name in names or ["test_*.py"]:
        for tests in run_own_tests(checkout, APPLICATIONS["resnet-8"], f"test/{name}"):
            failed = [f"{test.name}: {test.outcome}" for test in tests if test.failed]
            passed = sum(test.outcome == "passed" for test in tests)
            skipped = len(tests) - passed - len(failed)
            print(f"| {tests[0].file} | {passed} | {skipped} | {len(failed)} | {'; '.join(failed)} |", flush=True)
            whole = whole and not failed
    return whole


def main() -> None:
    """Runs the applications of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.graphcore_applications", description=__doc__)
    parser.add_argument("--stock", action="store_true", help="compare losses with those of stock TensorFlow")
    parser.add_argument("--own-tests", action="store_true", help="run the own tests of vision/cnns; names are files")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.own_tests:
        print("| file | passed | skipped | failed | reason |\n|---|---|---|---|---|", flush=True)
        sys.exit(not own_tests(given.checkout, given.names))
    print(COMPARED_HEAD if given.stock else HEAD, flush=True)
    whole = True
    for name in given.names or (COMPARED if given.stock else APPLICATIONS):
        good, text = (compared_line if given.stock else line)(given.checkout, name)
        print(text, flush=True)
        whole = whole and good
    sys.exit(not whole)


if __name__ == "__main__":
    main()
