"""Ctrl-C while the device runs: the iterations at hand end first, so that what they computed is not lost."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupts:
    """A context manager within which the first Ctrl-C is only noted; a second one interrupts at once.

    It leaves other threads than the main one, and programs with a SIGINT handler of their own, alone. One within
    another notes what the outer one does.

    Attributes:
        asked: whether Ctrl-C was pressed.

    Example:
        >>> with Interrupts() as interrupts:
        ...     interrupts.check()
    """

    def __init__(self) -> None:
        self._asked = False
        self._installed = False
        self._outer: Interrupts | None = None

    @property
    def asked(self) -> bool:
        """Whether Ctrl-C was pressed, here or in an enclosing context."""
        return self._asked or (self._outer is not None and self._outer.asked)

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is not threading.main_thread():
            return self
        handler = signal.getsignal(signal.SIGINT)
        owner = getattr(handler, "__self__", None)
        if isinstance(owner, Interrupts):
            self._outer = owner
        elif handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self._installed = True
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False

    def check(self) -> None:
        """Raises `KeyboardInterrupt` if Ctrl-C was pressed.

        Raises:
            KeyboardInterrupt: if Ctrl-C was pressed.
        """
        if self.asked:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.check()
        self._asked = True
