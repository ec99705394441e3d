"""Damages files of every format that the project reads, and reads them: `python -m tests.helpers.file_fuzz --help`.

A process of its own reads the files, and says which it is at: so a crash is seen, and known by the number of its case.
A case is the same whenever it is run again: `--format cache --first 4711 --cases 1`.

outcome      what it means
same         the file gives what was written
other        a format without checksums, or a forged file, gives what it says; or the whole of another file is there
refused      an error that names what is wrong
wrong        the file gives something else than was written
unexpected   an error of another class than the format's
code         the process would have run code: unpickled a function, started a program
crash, hang  the process ended, or took more than a minute for a file
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ipu_tf.device.files import exported_module
from tests.helpers.file_formats import FORMATS, Format
from tests.helpers.file_mutations import mutated

GOOD = ("same", "other", "refused")
_FORMATS = "tests.helpers.file_formats"
_SECONDS = 60
_FORBIDDEN = ("pickle.find_class", "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen")


class _CodeRun(BaseException):
    """Something in a file was about to be run."""


class _Touching:
    """An object whose pickle makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


def fuzz(name: str, cases: int, first: int = 0, formats: str = _FORMATS) -> collections.Counter[str]:
    """Reads damaged files of a format, in processes of their own, and counts what came of it.

    Args:
        name: of the format.
        cases: how many files.
        first: the number of the first.
        formats: the module that has the format in its `FORMATS`.
    """
    counts: collections.Counter[str] = collections.Counter()
    at, end = first, first + cases
    while at < end:
        started = at - 1
        for number, outcome in _worker(name, at, end - at, formats):
            started = number
            if outcome:
                counts[outcome.partition(":")[0]] += 1
                at = number + 1
                if outcome.partition(":")[0] not in GOOD:
                    print(f"case {number}: {outcome}", flush=True)
        if at < end:
            if started < at:
                raise RuntimeError(f"The process that reads '{name}' ended before case {at}.")
            counts["crash"] += 1
            at = started + 1
            print(f"case {started}: the process ended", flush=True)
    return counts


def _worker(name: str, first: int, cases: int, formats: str) -> Iterator[tuple[int, str]]:
    """Lines of a process: the number of each case when it begins, and again with its outcome."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.helpers.file_fuzz", "--format", name]
    command += ["--first", str(first), "--cases", str(cases), "--worker", formats]
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("CASE "):
                number, _, outcome = line.removeprefix("CASE ").strip().partition(" ")
                yield int(number), outcome
        if process.wait():
            errors.seek(0)
            print(f"the process ended with {process.returncode}:\n{errors.read()[-3000:]}")


def work(kind: Format, name: str, first: int, cases: int) -> None:
    """Reads damaged files of a format in this process, and says of each when it begins and ends."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        whole = list(kind.files(folder))
        wanted = [json.dumps(kind.result(data, folder / "file")) for data in whole[: 1 if kind.keyed else 2]]
        trap = pickle.dumps(_Touching(folder / "code_was_run"))
        _watch()
        for number in range(first, first + cases):
            print(f"CASE {number}", flush=True)
            signal.alarm(_SECONDS)
            generator = np.random.default_rng([number, *map(ord, name)])
            other = whole[1] if number % 4 else trap + whole[1]
            try:
                data = kind.change(whole[0], other if kind.change is mutated else whole[1], generator)
                outcome = _outcome(kind, data, whole[0], wanted, folder)
            except _CodeRun as code:
                outcome = f"code: {code}"
            print(f"CASE {number} {outcome}", flush=True)


def _outcome(kind: Format, data: bytes, whole: bytes, wanted: list[str], folder: Path) -> str:
    try:
        found = json.dumps(kind.result(data, folder / "file"))
    except kind.refusals as error:
        outcome = "refused" if data != whole else f"wrong: refused as it was written: {error}"
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        outcome = f"unexpected: {type(error).__name__}: {str(error).splitlines()[:1]}"
    else:
        fits = found in wanted or not kind.exact
        outcome = "same" if found == wanted[0] else "other" if fits else f"wrong: {found[:200]}"
    return "code: a file was made" if (folder / "code_was_run").exists() else outcome


def _watch() -> None:
    """From now on, code that a file would have run is not, and is known."""

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and exported_module.__file__ in arguments[1]:
            return  # the process that parses modules
        if event.startswith(_FORBIDDEN):
            raise _CodeRun(f"{event} {arguments}")

    sys.addaudithook(heard)


def main() -> None:
    """Damages and reads what the command line asks for; the status is 1 if anything bad came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.file_fuzz", description=__doc__.split("\n\n")[0])
    parser.add_argument("--format", nargs="+", default=list(FORMATS), help="what to read (all)")
    parser.add_argument("--cases", type=int, default=10_000, help="files of each format (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case (%(default)s)")
    parser.add_argument("--worker", metavar="MODULE", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        [name] = asked.format
        work(importlib.import_module(asked.worker).FORMATS[name], name, asked.first, asked.cases)
        return
    bad = 0
    for name in asked.format:
        start = time.perf_counter()
        counts = fuzz(name, asked.cases, asked.first)
        bad += sum(count for outcome, count in counts.items() if outcome not in GOOD)
        print(f"{name}: {dict(sorted(counts.items()))}, {time.perf_counter() - start:.0f} s", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
