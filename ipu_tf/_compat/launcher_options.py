"""Command line of the launcher: its options and its help."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

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

MODULE, REPORT, COMPARE, USER_OPS = "-m", "--report", "--compare", "--user-ops"


def command_line(command: str) -> argparse.ArgumentParser:
    """Returns the parser of the launcher's own options, those in front of the program."""
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
        USER_OPS,
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
        REPORT,
        metavar="FILE",
        help="write an HTML page on the program that took most of the time: memory, FLOPs, times",
    )
    parser.add_argument(
        COMPARE,
        metavar="OLD",
        help="with --report: say on the page what grew since an older report, such as profile.pop",
    )


def report_page(path: str, parser: argparse.ArgumentParser) -> Path:
    """Returns where `--report` puts its page. Exits with the parser's error where no file can be."""
    page = Path(path).absolute()
    if not page.parent.is_dir() or page.is_dir():
        parser.error(f"--report must be a file in a folder that there is. Received: {path!r}")
    return page


def _file(path: str) -> Path:
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"must be a Python file that calls `register_user_op`. Received: {path!r}")
    return Path(path)


def older_report(path: str, parser: argparse.ArgumentParser) -> Any:
    """Returns the report that `--compare` names. Exits with the parser's error if it is none."""
    from ipu_tf.reports.files import load

    try:
        return load(path)
    except (OSError, ValueError) as error:
        parser.error(f"--compare must be a report such as profile.pop: {error}")
