"""Ctrl-C during a whole call (`fit`, `strategy.run`): tracing, compiling and running end with `KeyboardInterrupt`.

    SIGINT ──► noted ──► raised by `check_interrupts`, between two stages or ops     where state is whole
                   └──── after 0.8 s raised anywhere, again and again                but not in an execution

Python raises `KeyboardInterrupt` wherever it happens to be. In a callback of the garbage collector, such as JAX's, in
one of a weak reference, or in Python that C++ calls, it is lost, or comes out as a `SystemError`.
"""

from __future__ import annotations

import _thread
import gc
import signal
import threading
import time
import weakref
from types import FrameType, TracebackType
from typing import Any

from ipu_tf.device.run.interrupts import Interrupts

_WAIT_SECONDS = 0.8
"""For how long a place between two stages is awaited."""
_AGAIN_SECONDS = 0.02
_HOLD_OFF_SECONDS = 0.3
"""For how long an exception, or a result, on its way out is not interrupted."""
_MOST_AVOIDED = 30
"""How often a bad place is left alone before `KeyboardInterrupt` is raised in it all the same."""
_FINALIZER = "__del__"
"""Python ignores its exceptions, and those of callbacks of the garbage collector and of weak references."""
_OF_WEAK_REFERENCES = {each.__code__.co_filename for each in (weakref.finalize.__call__, weakref.WeakSet.__len__)}
"""Files with callbacks of weak references, which Python calls where an object ends."""
_HALF_DONE = ("__enter__", "__exit__")
"""Functions that leave libraries in an unknown state if they are interrupted."""
_NEAREST_FRAMES = 4


class InterruptibleCall(Interrupts):
    """Context manager of a call: Ctrl-C at any moment in it ends it with `KeyboardInterrupt`, within two seconds.

    In an `Interrupts` inside of it, an execution is finished first, and a second Ctrl-C interrupts at once. One
    XLA compilation that has no thread of its own is finished first, too. Inside of another one it has no effect.

    Example:
        >>> with InterruptibleCall():
        ...     pass
    """

    may_leave = True

    def __init__(self) -> None:
        super().__init__()
        self._pressed_again = False
        self._avoided = 0
        self._not_before = 0.0
        self._exiting = threading.Lock()
        self._collecting = False

    def __enter__(self) -> Interrupts:
        super().__enter__()
        if self._installed:
            gc.callbacks.append(self._note_collection)
        return self

    def _join(self, outer: Interrupts) -> None:
        """Leaves an outer context as it is."""

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._installed:
            return
        self._installed = False  # from here on Ctrl-C is noted, and raised below
        gc.callbacks.remove(self._note_collection)
        with self._exiting:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._requested and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error

    def _note(self, number: int, frame: FrameType | None) -> None:
        by_user = not self._pressed_again
        self._pressed_again = False
        if not self._requested:
            self._requested = True
            _thread.start_new_thread(self._press_again, ())  # `threading` has locks, which this thread may hold
        elif self._installed and (by_user or (not self.deferrals and self._may_raise(frame))):
            raise KeyboardInterrupt

    def hold_off(self) -> None:
        """Interrupts nothing for a moment: state is being handed over."""
        self._not_before = time.monotonic() + _HOLD_OFF_SECONDS

    def _may_raise(self, frame: FrameType | None) -> bool:
        if time.monotonic() < self._not_before:
            return False
        if (self._collecting or _is_bad_place(frame)) and self._avoided < _MOST_AVOIDED:
            self._avoided += 1
            return False
        self._avoided = 0
        self.hold_off()
        return True

    def _note_collection(self, phase: str, info: dict[str, Any]) -> None:
        """Takes from the collector that it begins or ends, in this thread: exceptions of what it calls are ignored."""
        if threading.current_thread() is threading.main_thread():
            self._collecting = phase == "start"

    def _press_again(self) -> None:
        """Sends the signal again until the call has ended: what was raised may have been lost."""
        time.sleep(_WAIT_SECONDS)
        while True:
            with self._exiting:
                if not self._installed:
                    return
                self._pressed_again = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(_AGAIN_SECONDS)


def _is_bad_place(frame: FrameType | None) -> bool:
    """Returns whether an exception that is raised in a frame would be lost, or would leave a context half entered."""
    callbacks = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    depth = 0
    while frame is not None:
        name = frame.f_code.co_name
        ignored = name == _FINALIZER or frame.f_code in callbacks or frame.f_code.co_filename in _OF_WEAK_REFERENCES
        if ignored or (depth < _NEAREST_FRAMES and name in _HALF_DONE):
            return True
        frame, depth = frame.f_back, depth + 1
    return False
