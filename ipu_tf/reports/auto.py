"""`autoReport`: writes a folder with reports for each program that is compiled, as Poplar's engine option of this name.

<directory>/tf_report__<iso date>__<pid>/profile.pop     `ipu_tf.reports.load` reads it
                                         report.html
                                         framework.json
"""

from __future__ import annotations

import atexit
import dataclasses
import datetime
import functools
import json
import os
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

import jax

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.program.program import Program
from ipu_tf.device.run.compilation_log import report_to
from ipu_tf.device.run.run_record import RunRecord
from ipu_tf.reports.build import report_of
from ipu_tf.reports.files import save
from ipu_tf.reports.page import write_page
from ipu_tf.reports.report import Report

_PROFILE, _PAGE, _FRAMEWORK = "profile.pop", "report.html", "framework.json"


@dataclasses.dataclass(frozen=True)
class AutoReport:
    """What is written, and where.

    Attributes:
        directory: the folder that gets a folder for each program; None writes none.
        page: a file for one page, on the program that took most of the time; written when the first is compiled, and
            again when the process ends. Where a compilation failed, on the program that failed last. None for none.
        compare: an older report, which the page is compared with; None for none.
    """

    directory: Path | None = None
    page: Path | None = None
    compare: Report | None = None


@dataclasses.dataclass(frozen=True)
class _Paged:
    """Program that the page is on; `failed` if it was not compiled: the page is then written, and stays."""

    program: Program
    record: RunRecord
    failed: bool = False


_setting = register_state("automatic reports", ProcessValue(AutoReport()))
_longest: ProcessValue[_Paged | None] = register_state("program of the page", ProcessValue(None))
"""The one that took most of the time so far; kept alive, so that there is a page on it when the process ends."""
_written: dict[Path, tuple[weakref.ref[Program], RunRecord]] = register_state("folders with reports", {})
_at_exit = register_state("reports at the end of the process", ProcessValue(False), kept="atexit keeps its functions")


def use(setting: AutoReport) -> None:
    """Sets what is written from now on; nothing is computed for programs before."""
    _setting.value = setting
    wanted = setting != AutoReport()
    follow = None if setting.page is None else _program_executed
    report_to(_program_compiled if wanted else None, follow, _compilation_failed if wanted else None)
    if setting.page is None:
        _longest.clear()
    if wanted and not _at_exit.value:
        _at_exit.value = True
        atexit.register(_finish)


def setting() -> AutoReport:
    """Returns what is written now."""
    return _setting.value


def _program_compiled(program: Program, record: RunRecord) -> None:
    """Writes the reports on a program after the execution in which it was compiled."""
    page, directory = _setting.value.page, _setting.value.directory
    if page is not None and _longest.value is None:
        _try(page, lambda: write_page(report_of(program, record), page, _setting.value.compare))
    if directory is not None:
        _try(directory, lambda: _write_folder(program, record, directory))


def _compilation_failed(program: Program, record: RunRecord, error: str) -> None:
    """Writes the reports on a program that was not compiled: how far it came, and what ended it."""
    page, directory = _setting.value.page, _setting.value.directory
    if page is not None:
        _longest.value = _Paged(program, record, failed=True)
        _try(page, lambda: write_page(report_of(program, record, error), page, _setting.value.compare))
    if directory is not None:
        folder: list[Path] = []
        _try(directory, lambda: folder.append(_new_folder(directory)))
        for each in folder:
            _try(each, functools.partial(_write, program, record, each, error))


def _program_executed(program: Program, record: RunRecord) -> None:
    """Keeps the program that took most of the time, unless one failed."""
    before = _longest.value
    if before is None or (not before.failed and record.seconds >= before.record.seconds):
        _longest.value = _Paged(program, record)


def _write_folder(program: Program, record: RunRecord, directory: Path) -> None:
    """Writes the reports on a program to a folder of its own; forgets the folders of programs that are gone."""
    for folder, (reference, _) in list(_written.items()):
        if reference() is None:
            _written.pop(folder, None)
    folder = _new_folder(directory)
    _written[folder] = (weakref.ref(program), record)
    _write(program, record, folder)


def _new_folder(directory: Path) -> Path:
    """Makes a folder of a name that no other program has."""
    while True:
        folder = directory / f"tf_report__{datetime.datetime.now().isoformat()}__{os.getpid()}"
        try:
            folder.mkdir()
        except FileExistsError:  # another thread's, made at the same time: the clock goes on
            continue
        return folder


def _write(program: Program, record: RunRecord, folder: Path, failed: str = "") -> None:
    report = report_of(program, record, failed)
    save(report, folder / _PROFILE)
    write_page(report, folder / _PAGE)
    (folder / _FRAMEWORK).write_text(json.dumps(_framework(program), indent=2) + "\n")


def _try(path: Path, write: Callable[[], None]) -> None:
    try:
        write()
    except Exception as error:  # noqa: BLE001 - a report that fails must not end the user's training
        _warn(path, f"{type(error).__name__}: {error}")


def _warn(path: Path, why: str) -> None:
    warnings.warn(f"No report was written to '{path}': {why}", RuntimeWarning, stacklevel=3)


def _framework(program: Program) -> dict[str, object]:
    """Returns what `framework.json` says."""
    return {
        "framework": "ipu_tf (emulated IPU)",
        "program": program.readable_name,
        "replicas": program.replicas,
        "pid": os.getpid(),
        "jax": jax.__version__,
        "backend": jax.default_backend(),
    }


def _finish() -> None:
    """Writes the reports on programs that are still in use again, with the times of all their executions."""
    for folder, (reference, record) in _written.items():
        program = reference()
        if program is not None and record.executions > 1 and folder.is_dir():
            _try(folder, functools.partial(_write, program, record, folder))
    page, longest = _setting.value.page, _longest.value
    if page is None:
        return
    if longest is None:
        _warn(page, "the device ran no program. Models run there that are made in the scope of an `IPUStrategy`.")
    elif not longest.failed:
        _try(page, lambda: write_page(report_of(longest.program, longest.record), page, _setting.value.compare))
