"""Handles Ctrl-C during a run: finishes the iterations in flight, then raises `KeyboardInterrupt`."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupts:
    """Context manager that defers the first Ctrl-C to `check`; a second one interrupts at once.

    It has no effect in threads other than the main one, and in programs with their own SIGINT handler. A nested one
    shares the outer one's state.

    Attributes:
        requested: whether Ctrl-C was pressed.

    Example:
        >>> with Interrupts() as interrupts:
        ...     interrupts.check()
    """

    def __init__(self) -> None:
        self._requested = False
        self._installed = False
        self._outer: Interrupts | None = None

    @property
    def requested(self) -> bool:
        """Returns whether Ctrl-C was pressed, here or in an enclosing context."""
        return self._requested or (self._outer is not None and self._outer.requested)

    @property
    def active(self) -> bool:
        """Whether Ctrl-C is noted here: in the main thread of a program without a SIGINT handler of its own."""
        return self._installed or self._outer is not None

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
        if self.requested:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.check()
        self._requested = True
