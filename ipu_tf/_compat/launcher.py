"""The launcher: runs unmodified programs written for Graphcore's TensorFlow."""

from __future__ import annotations

import argparse
import dataclasses
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from ipu_tf._compat.keras_2_hint import hint_at_keras_2
from ipu_tf._compat.launcher_module import ModuleMissing, ModuleProgram, module_file
from ipu_tf._compat.launcher_options import (
    COMPARE,
    MODULE,
    REPORT,
    USER_OPS,
    command_line,
    older_report,
    report_page,
)
from ipu_tf._compat.launcher_stats import StatsReport
from ipu_tf._compat.program_files import ProgramFiles
from ipu_tf._compat.program_names import prepare, provide_names
from ipu_tf._compat.run_script import Script, ScriptMissing, shorten_tracebacks
from ipu_tf.device import environment


def main(argv: Sequence[str] | None = None, command: str = "python -m ipu_tf") -> None:
    """Runs the script or module of the command line; the process then exits with the program's status.

    Args:
        argv: the command line after `command`; that of this process by default.
        command: what was typed before it, for the help.

    Raises:
        SystemExit: the command line is wrong or asks for help, or the script exits.
        BaseException: whatever the script raises.
    """
    parser = command_line(command)
    options, program_line = _split(sys.argv[1:] if argv is None else list(argv))
    given = parser.parse_args(options)
    if not program_line:
        parser.error("which script? Give the path of a Python file after the options")
    program = _program(program_line, parser)
    if given.no_cache:
        environment.keep_no_executables()
    environment.enable_aliases_in_children(str(Path(__file__).with_name("child_processes")))
    if given.compare and not given.report:
        parser.error("--compare wants a page that it is shown on: --report FILE")
    if given.report:
        from ipu_tf.reports.auto import setting, use  # imports JAX, which a program may yet configure

        compare = older_report(given.compare, parser) if given.compare else None
        use(dataclasses.replace(setting(), page=report_page(given.report, parser), compare=compare))
    if given.user_ops:
        runpy.run_path(str(given.user_ops), run_name="user_ops")
    _run(program, StatsReport() if given.stats else None)


def _program(program_line: Sequence[str], parser: argparse.ArgumentParser) -> Script | ModuleProgram:
    """Returns the program of a command line, with the names that it imports provided."""
    if not program_line[0].startswith(MODULE):
        script = _script(program_line, parser)
        prepare(script.file)
        return script
    provide_names()  # packages around the module are imported to find it
    early = module_file(_module_name(program_line)[0])
    if early is not None:
        _prepare_module(early)
    program = _module(program_line, parser)
    if early is None:
        _prepare_module(program.file)
    return program


def _script(command: Sequence[str], parser: argparse.ArgumentParser) -> Script:
    path, *args = command
    shorten_tracebacks(Path(path).absolute())
    try:
        return Script(path, args)
    except ScriptMissing as error:
        parser.error(str(error))


def _prepare_module(file: Path) -> None:
    try:
        prepare(file, Path.cwd())
    except SyntaxError as error:
        shorten_tracebacks(Path(error.filename or ""))
        raise


def _module_name(command: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the name of a module behind `-m`, and the arguments behind it; empty without one."""
    first, *args = command
    name, *args = (first[2:], *args) if len(first) > 2 else args or [""]
    return name, args


def _module(command: Sequence[str], parser: argparse.ArgumentParser) -> ModuleProgram:
    name, args = _module_name(command)
    if not name:
        parser.error("argument expected for the -m option: the name of a module")
    try:
        program = ModuleProgram(name, args)
    except ModuleMissing as error:
        sys.exit(f"{sys.executable}: {error}")
    except SyntaxError as error:
        shorten_tracebacks(Path(error.filename or ""))
        raise
    shorten_tracebacks(program.file)
    return program


def _run(program: Script | ModuleProgram, report: StatsReport | None) -> None:
    try:
        program.run()
    except Exception as error:
        hint_at_keras_2(error, ProgramFiles(program.file, python_path=environment.python_path_folders()))
        raise
    finally:
        if report is not None:
            report.note_devices()


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Splits the command line into the launcher's options and the program's arguments, from the script or `-m` on."""
    for place, arg in enumerate(argv):
        is_value = place > 0 and argv[place - 1] in (REPORT, COMPARE, USER_OPS)
        if not is_value and (not arg.startswith("-") or arg.startswith(MODULE)):
            return argv[:place], argv[place:]
    return argv, []
