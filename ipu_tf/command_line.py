"""Command line `ipu-tf`: runs programs on the emulated IPU, and prints versions and devices."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import ipu_tf
from ipu_tf._compat import launcher
from ipu_tf.device import environment

_DESCRIPTION = "The Graphcore IPU programming interface for stock TensorFlow and Keras, on an emulated IPU."
_EXAMPLES = """\
examples:
  ipu-tf run train.py --epochs 3          train.py with its own arguments, unchanged
  ipu-tf run --stats train.py             the same; the last line says what the device did
  ipu-tf run --report out.html train.py   an HTML page on its program: memory, FLOPs, times
  ipu-tf run --stats -m package.train     a module, as `python -m` runs it
  ipu-tf info                             versions, devices, variables that are set: paste it into a bug report

`ipu-tf run --help` has more. `python -m ipu_tf` is the same as `ipu-tf run`."""
_LIBRARIES = ("tensorflow", "keras", "jax", "jaxlib", "numpy")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line.

    Args:
        argv: the command line after `ipu-tf`; that of this process by default.

    Raises:
        SystemExit: the command line is wrong or asks for help, or the program exits.
        BaseException: whatever the program raises.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    if given[:1] == ["run"]:
        _run(given[1:])
        return
    options = _parser().parse_args(given)
    if options.command == "info":
        print("\n".join(_info()))
    else:
        _parser().print_help()


def _run(given: list[str]) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd())  # where `python -m` looks first; the script's own folder is there now
    launcher.main(given, command="ipu-tf run")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ipu-tf",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ipu-tf {ipu_tf.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    commands.add_parser("run", help="run a script or a module on the emulated IPU", add_help=False)
    commands.add_parser("info", help="print versions, devices and the variables that are set")
    return parser


def _info() -> Iterator[str]:
    """The lines of `ipu-tf info`."""
    yield f"{'ipu_tf':<12} {ipu_tf.__version__}"
    yield f"{'python':<12} {platform.python_version()} on {platform.platform()}"
    for library in _LIBRARIES:
        yield f"{library:<12} {_version(library)}"
    yield f"{'IPUs':<12} {environment.ipu_count()} emulated; no figure here is one of IPU hardware"
    yield f"{'runs on':<12} {_jax_devices()}"
    for name, value in environment.variables_set().items():
        yield f"{name}={value}"


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _jax_devices() -> str:
    import jax

    devices = jax.devices()
    names = dict.fromkeys((devices[0].platform, devices[0].device_kind))
    return f"{len(devices)} JAX device{'s' if len(devices) > 1 else ''} ({', '.join(names)})"
