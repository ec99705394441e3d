"""Handles Ctrl-C during a run: finishes the iterations in flight, then raises `KeyboardInterrupt`."""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

from ipu_tf._state.registry import ProcessValue, register_state

T = TypeVar("T")

_pipe: ProcessValue[tuple[int, int] | None] = register_state(
    "pipe of signals", ProcessValue(None), kept="it is opened once, and empty between runs"
)
_called_back: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_called_back_while_waiting", default=False)


class Interrupts:
    """Context manager that defers the first Ctrl-C to `check`; a second one interrupts at once.

    It has no effect in programs with their own SIGINT handler, and in threads other than the main one, unless the main
    thread waits for them in an `InterruptibleWait`. A nested one shares the outer one's state.

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
        owner = _owner()
        if owner is not None:
            self._join(owner)
        elif not _in_main_thread():
            return self
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
            self._outer.hold_off()
            self._outer = None

    def check(self) -> None:
        """Raises `KeyboardInterrupt` if Ctrl-C was pressed.

        Raises:
            KeyboardInterrupt: if Ctrl-C was pressed.
        """
        if self.requested:
            (self._outer or self).hold_off()
            raise KeyboardInterrupt

    def hold_off(self) -> None:
        """Is called where an execution ended, or an interruption began: what follows should not be interrupted."""

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.check()
        self._requested = True


class InterruptibleWait(Interrupts):
    """Context manager in which the main thread calls C++ that waits for Python in other threads: Ctrl-C reaches that.

    Python's handlers run in the main thread, which is not in Python. So the signal's number is written to a pipe at
    once, by `signal.set_wakeup_fd`, where an `Interrupts` in a `called_back` looks for it.

    At its end it raises `KeyboardInterrupt` if Ctrl-C was pressed.

    Example:
        >>> with InterruptibleWait():
        ...     pass
    """

    def __init__(self) -> None:
        super().__init__()
        self._reader = self._former = -1
        self._signals = b""

    @property
    def requested(self) -> bool:
        """Returns whether Ctrl-C was pressed, also where its handler could not run yet."""
        return super().requested or signal.SIGINT in self._received()

    def __enter__(self) -> InterruptibleWait:
        super().__enter__()
        if self._installed:
            if _pipe.value is None:
                _pipe.value = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._reader, writer = _pipe.value
            self._former = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._reader != -1:
            signal.set_wakeup_fd(self._former)
            signals = self._received() if self._requested or self._former != -1 else b""
            if self._former != -1 and signals:  # asyncio's, for one, waits for them there
                os.write(self._former, signals)
        super().__exit__(kind, error, trace)
        if self._requested:
            raise KeyboardInterrupt from error

    def _received(self) -> bytes:
        if self._reader != -1:
            with contextlib.suppress(BlockingIOError):
                self._signals += os.read(self._reader, 512)
        return self._signals

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._requested = True


def interruptible(call: Callable[..., T], *arguments: Any) -> T:
    """Calls C++ that waits for Python in other threads; Ctrl-C ends what runs in a `called_back` there.

    Raises:
        KeyboardInterrupt: after the call, if Ctrl-C was pressed.
    """
    with InterruptibleWait():
        return call(*arguments)


@contextlib.contextmanager
def called_back() -> Iterator[None]:
    """Context manager of Python that C++ calls: where the main thread waits for it, Ctrl-C ends what is run in it."""
    token = _called_back.set(True)
    try:
        yield
    finally:
        _called_back.reset(token)


def check_interrupts() -> None:
    """Raises `KeyboardInterrupt` if Ctrl-C was pressed and no execution is in flight; for places between two stages."""
    owner = _owner()
    if owner is not None and owner.may_leave and not owner.deferrals:
        owner.check()


@contextlib.contextmanager
def interrupt_at_once() -> Iterator[None]:
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
    owner = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    mine = _in_main_thread() or (isinstance(owner, InterruptibleWait) and _called_back.get())
    return owner if mine and isinstance(owner, Interrupts) else None


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _leave_parent_alone() -> None:
    """In a forked process: makes Ctrl-C interrupt it alone. Its pipe has the numbers of its parent's."""
    if _pipe.value is not None:
        for new, shared in zip(os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC), _pipe.value, strict=True):
            os.dup2(new, shared, inheritable=False)
            os.close(new)
    if isinstance(getattr(signal.getsignal(signal.SIGINT), "__self__", None), Interrupts):
        signal.signal(signal.SIGINT, signal.default_int_handler)


os.register_at_fork(after_in_child=_leave_parent_alone)
