"""Handles Ctrl-C during a run: finishes the iterations in flight, then raises `KeyboardInterrupt`."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType


class Interrupts:
    """Context manager that defers the first Ctrl-C to `check`; a second one interrupts at once.

    It has no effect in threads other than the main one, and in programs with their own SIGINT handler. A nested one
    shares the outer one's state.

    Attributes:
        requested: whether Ctrl-C was pressed.
        deferrals: how many contexts inside of this one defer it.

    Example:
        >>> with Interrupts() as interrupts:
        ...     interrupts.check()
    """

    may_leave = False
    """Whether Ctrl-C may end what is in the context at places that are not its own calls of `check`."""

    def __init__(self) -> None:
        self._requested = False
        self._installed = False
        self._outer: Interrupts | None = None
        self.deferrals = 0

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
        owner = _owner()
        if owner is not None:
            self._join(owner)
        elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._installed = True
            signal.signal(signal.SIGINT, self._note)
        return self

    def _join(self, outer: Interrupts) -> None:
        outer.deferrals += 1
        self._outer = outer

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False
        if self._outer is not None:
            self._outer.deferrals -= 1
            self._outer.settle()
            self._outer = None

    def check(self) -> None:
        """Raises `KeyboardInterrupt` if Ctrl-C was pressed.

        Raises:
            KeyboardInterrupt: if Ctrl-C was pressed.
        """
        if self.requested:
            (self._outer or self).settle()
            raise KeyboardInterrupt

    def settle(self) -> None:
        """Is called where an execution ended, or an interruption began: what follows should not be interrupted."""

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.check()
        self._requested = True


def check_interrupts() -> None:
    """Raises `KeyboardInterrupt` if Ctrl-C was pressed and no execution is in flight; for places between two stages."""
    owner = _owner()
    if owner is not None and owner.may_leave and not owner.deferrals:
        owner.check()


@contextlib.contextmanager
def undeferred() -> Iterator[None]:
    """Context manager in an `Interrupts`: what is in it may be left anywhere, as nothing has been changed yet."""
    owner = _owner()
    held = 0 if owner is None else owner.deferrals
    if owner is not None:
        owner.deferrals = 0
    try:
        yield
    finally:
        if owner is not None:
            owner.deferrals = held


def _owner() -> Interrupts | None:
    """Returns the outermost context, which has the handler of SIGINT; None elsewhere."""
    if threading.current_thread() is not threading.main_thread():
        return None
    owner = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return owner if isinstance(owner, Interrupts) else None
