"""`ReaderThread`: threads that read elements of infeeds, kept for a while between two reads."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any

from ipu_tf._state.registry import register_state

_KEPT = 2.0
"""Seconds that a thread without work waits for more before it ends."""


class ReaderThread:
    """Worker thread that runs one function after the other, and is idle in between."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[concurrent.futures.Future[Any], Callable[..., Any], Any]] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._work, name="ipu-infeed", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int:
        """The thread's ident."""
        return self._thread.ident or 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> concurrent.futures.Future[Any]:
        """Gives the thread a function to run; returns its result to be."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._jobs.put((future, function, arguments))
        return future

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_KEPT)
            except queue.Empty:
                if self._retired():
                    return
                continue
            self._run(*job)
            # Results may be large, and the next job may be long in coming.
            del job

    def _run(self, future: concurrent.futures.Future[Any], function: Callable[..., Any], arguments: Any) -> None:
        try:
            result = function(*arguments)
        except BaseException as error:  # noqa: B036 - raised in the thread that waits
            self._rest()
            future.set_exception(error)
        else:
            self._rest()
            future.set_result(result)

    def _rest(self) -> None:
        """Notes that the thread has no work. It does so itself: whoever waits for it may be gone."""
        with _lock:
            _idle.append(self)

    def _retired(self) -> bool:
        """Removes the thread from the idle ones, unless a job is about to be given to it; returns whether it did."""
        with _lock:
            idle = self in _idle
            if idle:
                _idle.remove(self)
        return idle


_idle: list[ReaderThread] = register_state("reading threads without work", [], kept="they end after seconds")
_lock = threading.Lock()


def reader_thread() -> ReaderThread:
    """Returns a thread that has no work, for one function."""
    with _lock:
        return _idle.pop() if _idle else ReaderThread()
