"""Command line of the launcher: runs unmodified programs written for Graphcore's TensorFlow."""

from __future__ import annotations

import argparse
import dataclasses
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipu_tf._compat.keras_2_hint import hint_at_keras_2
from ipu_tf._compat.launcher_module import ModuleMissing, ModuleProgram, module_file
from ipu_tf._compat.launcher_stats import StatsReport
from ipu_tf._compat.program_files import ProgramFiles
from ipu_tf._compat.program_names import prepare, provide_names
from ipu_tf._compat.run_script import Script, ScriptMissing, shorten_tracebacks
from ipu_tf.device import environment

DESCRIPTION = """\
Runs a Python program written for Graphcore's TensorFlow or Keras, unchanged, on an emulated IPU.

`from tensorflow.python import ipu`, `from tensorflow.keras import ipu` and the like give this project's
modules. A program for TensorFlow 1 gets the behaviour and the names of TensorFlow 1."""

EXAMPLE = """\
example:
  {command} --stats train.py --epochs 3

  runs train.py with the arguments --epochs 3, and ends with a line such as
  ipu_tf: 2 programs compiled, 30 executions, 3000 steps, 1 replica on 1 device (cpu)

Python processes that the program starts find Graphcore's modules as well; with IPU_TF_ALIASES=0 they do not."""

USAGE = """\
{command} [OPTIONS] SCRIPT [ARGS...]
       {command} [OPTIONS] -m MODULE [ARGS...]"""

_MODULE, _REPORT, _COMPARE, _USER_OPS = "-m", "--report", "--compare", "--user-ops"


def main(argv: Sequence[str] | None = None, command: str = "python -m ipu_tf") -> None:
    """Runs the script or module of the command line; the process then exits with the program's status.

    Args:
        argv: the command line after `command`; that of this process by default.
        command: what was typed before it, for the help.

    Raises:
        SystemExit: the command line is wrong or asks for help, or the script exits.
        BaseException: whatever the script raises.
    """
    parser = _parser(command)
    options, program_line = _split(sys.argv[1:] if argv is None else list(argv))
    given = parser.parse_args(options)
    if not program_line:
        parser.error("which script? Give the path of a Python file after the options")
    program: Script | ModuleProgram
    if program_line[0].startswith(_MODULE):
        provide_names()  # packages around the module are imported to find it
        early = module_file(_module_name(program_line)[0])
        if early is not None:
            _prepare_module(early)
        program = _module(program_line, parser)
        if early is None:
            _prepare_module(program.file)
    else:
        program = _script(program_line, parser)
        prepare(program.file)
    if given.no_cache:
        environment.keep_no_executables()
    environment.enable_aliases_in_children(str(Path(__file__).with_name("child_processes")))
    if given.compare and not given.report:
        parser.error("--compare wants a page that it is shown on: --report FILE")
    if given.report:
        from ipu_tf.reports.auto import setting, use  # imports JAX, which a program may yet configure

        compare = _older(given.compare, parser) if given.compare else None
        use(dataclasses.replace(setting(), page=_page(given.report, parser), compare=compare))
    if given.user_ops:
        runpy.run_path(str(given.user_ops), run_name="user_ops")
    _run(program, StatsReport() if given.stats else None)


def _page(path: str, parser: argparse.ArgumentParser) -> Path:
    page = Path(path).absolute()
    if not page.parent.is_dir() or page.is_dir():
        parser.error(f"--report must be a file in a folder that there is. Received: {path!r}")
    return page


def _file(path: str) -> Path:
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"must be a Python file that calls `register_user_op`. Received: {path!r}")
    return Path(path)


def _older(path: str, parser: argparse.ArgumentParser) -> Any:
    from ipu_tf.reports.files import load

    try:
        return load(path)
    except (OSError, ValueError) as error:
        parser.error(f"--compare must be a report such as profile.pop: {error}")


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
        is_value = place > 0 and argv[place - 1] in (_REPORT, _COMPARE, _USER_OPS)
        if not is_value and (not arg.startswith("-") or arg.startswith(_MODULE)):
            return argv[:place], argv[place:]
    return argv, []


def _parser(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=command,
        usage=USAGE.format(command=command),
        description=DESCRIPTION,
        epilog=EXAMPLE.format(command=command),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--stats",
        action="store_true",
        help="print what the emulated device did as the last line, also when the script fails",
    )
    _add_report_options(parser)
    _add_program_options(parser)
    return parser


def _add_program_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        _USER_OPS,
        metavar="FILE",
        type=_file,
        help="run a Python file first, which registers functions for the program's custom ops: ipu_tf.register_user_op",
    )
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="keep no compiled programs in the user's cache folder, as with IPU_TF_CACHE=0",
    )


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        _REPORT,
        metavar="FILE",
        help="write an HTML page on the program that took most of the time: memory, FLOPs, times",
    )
    parser.add_argument(
        _COMPARE,
        metavar="OLD",
        help="with --report: say on the page what grew since an older report, such as profile.pop",
    )
