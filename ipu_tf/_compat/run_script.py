"""Runs a script as `python SCRIPT` would."""

from __future__ import annotations

import builtins
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType, TracebackType


class ScriptMissing(Exception):
    """Error for a script that cannot be read."""


class Script:
    """A compiled script.

    Args:
        path: the script as the user named it.
        args: the script's own arguments, `sys.argv[1:]`.

    Raises:
        ScriptMissing: there is no such file, or it cannot be read.
        SyntaxError: it is not Python; Python's own report of it names the script.
    """

    def __init__(self, path: str, args: Sequence[str]) -> None:
        self.path = path
        self._args = args
        # Python, too, gives `__main__` an absolute `__file__`, whatever was typed.
        self.file = Path(path).absolute()
        try:
            source = self.file.read_bytes()
        except OSError as error:
            raise ScriptMissing(f"can't open file {str(self.file)!r}: {error.strerror}") from error
        if b"\0" in source:  # for which `compile` has no SyntaxError before Python 3.12
            line = source.count(b"\n", 0, source.index(b"\0")) + 1
            raise SyntaxError("source code cannot contain null bytes", (str(self.file), line, None, None))
        self._code: CodeType = compile(source, str(self.file), "exec", dont_inherit=True)

    def run(self) -> None:
        """Runs the script as module `__main__`, which it stays, with `sys.argv` and `sys.path` set for it.

        Raises:
            BaseException: whatever the script raises, SystemExit included.
        """
        sys.argv = [self.path, *self._args]
        if not sys.flags.safe_path:
            # `python -m` put the current folder there; `python SCRIPT` puts the script's, links resolved.
            sys.path[0] = str(self.file.resolve().parent)
        module = self._main_module()
        sys.modules["__main__"] = module
        exec(self._code, module.__dict__)

    def _main_module(self) -> ModuleType:
        module = types.ModuleType("__main__")
        loader = importlib.machinery.SourceFileLoader("__main__", str(self.file))
        module.__dict__.update(
            __file__=str(self.file),
            __cached__=None,
            __builtins__=builtins,
            __loader__=loader,
            __annotations__={},
        )
        return module


def shorten_tracebacks(script: Path) -> None:
    """Patches `sys.excepthook` so that the traceback of an uncaught error begins with the script's own frame.

    A script that sets `sys.excepthook` itself gets the whole traceback. An error outside of the script's
    frames, a defect of the launcher, is reported in full; a syntax error in the script has no frame at all.
    """
    report = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        own = _script_frames(trace, str(script))
        if own is not None or (isinstance(error, SyntaxError) and error.filename == str(script)):
            # The report takes the frames from the error, not from its argument.
            error.__traceback__ = trace = own
        report(kind, error, trace)

    sys.excepthook = hook


def _script_frames(trace: TracebackType | None, script: str) -> TracebackType | None:
    """The part of a traceback that begins with the script; None when the script is not in it."""
    while trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    return trace
