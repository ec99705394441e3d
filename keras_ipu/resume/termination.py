"""`Termination`: notes SIGTERM, which Slurm and Kubernetes send some seconds before they kill a process."""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import FrameType, TracebackType

_log = logging.getLogger("ipu_tf")

EXIT_CODE = 75
"""Exit code of a process that saved its run when it was told to end: EX_TEMPFAIL of sysexits.h, "try again"."""


class Termination:
    """Context manager in which the first SIGTERM is noted; the second ends the process as it would without.

    It does nothing in threads other than the main one, and in programs with a handler of their own.

    Attributes:
        requested: whether the process was told to end.
    """

    def __init__(self) -> None:
        self.requested = False
        self._installed = False

    def __enter__(self) -> Termination:
        if threading.current_thread() is not threading.main_thread():
            _log.warning("ipu_tf: ExactResume saves nothing at SIGTERM: `fit` does not run in the main thread.")
        elif signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            _log.warning("ipu_tf: ExactResume saves nothing at SIGTERM: the program has a handler of its own.")
        else:
            self._installed = True
            signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._installed:
            self._installed = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        self.requested = True
