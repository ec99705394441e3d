"""The launcher: runs programs written for Graphcore's TensorFlow, as they are."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ipu_tf._compat.aliases import install_aliases, provide_checkout
from ipu_tf._compat.former_names import bridge_former_names
from ipu_tf._compat.keras_in_graphs import bridge_keras
from ipu_tf._compat.launcher_detect import V1_MODULES, program_style
from ipu_tf._compat.launcher_script import Script, ScriptMissing, shorten_tracebacks
from ipu_tf._compat.launcher_stats import StatsReport
from ipu_tf._compat.tf1_names import (
    bridge_dimensions,
    bridge_functional_ops,
    bridge_layers,
    bridge_tf1_names,
    bridge_variables,
    disable_v2_behavior,
)
from ipu_tf._patches.import_hooks import after_import

DESCRIPTION = """\
Runs a Python program written for Graphcore's TensorFlow or Keras, unchanged, on an emulated IPU.

`from tensorflow.python import ipu`, `from tensorflow.keras import ipu` and the like give this project's
modules. A program for TensorFlow 1 gets the behaviour and the names of TensorFlow 1."""

EXAMPLE = """\
example:
  python -m ipu_tf --stats train.py --epochs 3

  runs train.py with the arguments --epochs 3, and ends with a line such as
  ipu_tf: 2 programs compiled, 30 executions, 3000 steps, 1 replica on 1 device (cpu)"""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the script that the command line names; the process then ends as the script would end it.

    Args:
        argv: the command line after `python -m ipu_tf`; that of this process by default.

    Raises:
        SystemExit: the command line is wrong or asks for help, or the script exits.
        BaseException: whatever the script raises.
    """
    parser = _parser()
    options, command = _split(sys.argv[1:] if argv is None else list(argv))
    stats = parser.parse_args(options).stats
    if not command:
        parser.error("which script? Give the path of a Python file after the options")
    script_path, *args = command
    shorten_tracebacks(Path(script_path).absolute())
    try:
        script = Script(script_path)
    except ScriptMissing as error:
        parser.error(str(error))
    prepare(script.file)
    _run(script, args, StatsReport() if stats else None)


def prepare(script: Path) -> None:
    """Makes Graphcore's modules importable, and TensorFlow behave as version 1 for a script that needs it.

    TensorFlow is not imported here: the script may set environment variables before it imports it.

    Raises:
        OSError: the script cannot be read.
        SyntaxError: the script is not Python.
    """
    install_aliases()
    bridge_former_names()
    bridge_keras()
    after_import("tensorflow.python.ops.functional_ops", bridge_functional_ops)
    after_import("tensorflow.python.ops.resource_variable_ops", bridge_variables)
    for v1 in sorted(V1_MODULES):
        after_import(v1, bridge_layers)
    after_import("ipu_tf._config.state", lambda module: module.have_one_ipu_by_default())
    provide_checkout(script)
    style = program_style(script)
    if style.tf1:
        after_import("tensorflow", bridge_tf1_names)
        after_import("tensorflow.python.framework.tensor_shape", bridge_dimensions)
        if not style.settles:
            after_import("tensorflow", disable_v2_behavior)


def _run(script: Script, args: Sequence[str], report: StatsReport | None) -> None:
    try:
        script.run(args)
    finally:
        if report is not None:
            report.note_devices()


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """The launcher's own options, and from the script on everything, which is the script's business."""
    end = next((i for i, arg in enumerate(argv) if not arg.startswith("-")), len(argv))
    return argv[:end], argv[end:]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ipu_tf",
        usage="python -m ipu_tf [--stats] [--help] SCRIPT [ARGS...]",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--stats",
        action="store_true",
        help="print what the emulated device did as the last line, also when the script fails",
    )
    return parser
