"""Reads infeed elements in threads, with a timeout (`InfeedTimeout`).

Reading an element may block for ever: a generator that waits for a message, a file on a server that is gone. Python
cannot interrupt it, so elements are read in threads of their own, and a program raises an error after some time
without an element. The blocked thread is abandoned.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import queue
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from ipu_tf._state.registry import register_state
from ipu_tf.device.environment import feed_timeout
from ipu_tf.device.errors import InfeedTimeout
from ipu_tf.device.feeds.infeed import Element, Infeed

T = TypeVar("T")


class _PendingRead(NamedTuple):
    """Wait of a thread for an element of an infeed.

    Attributes:
        queue: the infeed's name.
        element: the number of the element.
        since: when it began, by `time.monotonic`.
    """

    queue: str
    element: int
    since: float


_waits: dict[int, _PendingRead] = register_state("what threads wait for", {}, kept="each wait ends itself")
"""By the threads' idents."""


@contextlib.contextmanager
def waiting(name: str, element: int) -> Iterator[None]:
    """Context manager: marks this thread as waiting for an element of an infeed."""
    ident = threading.get_ident()
    _waits[ident] = _PendingRead(name, element, time.monotonic())
    try:
        yield
    finally:
        del _waits[ident]


def watched(name: Callable[[], str], open_source: Callable[[], Iterator[T]]) -> Callable[[], Iterator[T]]:
    """Wraps a source of elements so that each read is marked as a wait.

    Args:
        name: returns the infeed's name.
        open_source: returns an iterator over elements from the start of the data.
    """

    def opened() -> Iterator[T]:
        return elements(open_source())

    def elements(source: Iterator[T]) -> Iterator[T]:
        # Written out: this is run for each element, and with small ones a step is over in tens of microseconds.
        for number in itertools.count():
            ident = threading.get_ident()
            _waits[ident] = _PendingRead(name(), number, time.monotonic())
            try:
                element = next(source)
            except StopIteration:
                return
            finally:
                del _waits[ident]
            yield element

    return opened


_KEPT = 2.0
"""Seconds that a thread without work waits for more before it ends."""


class _ReaderThread:
    """Worker thread that runs one function after the other."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[concurrent.futures.Future[Any], Callable[..., Any], Any]] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._work, name="ipu-infeed", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._jobs.put((future, function, arguments))
        return future

    def wait(self) -> _PendingRead | None:
        """Returns the present wait of the thread."""
        return _waits.get(self._thread.ident or 0)

    def _work(self) -> None:
        while True:
            try:
                future, function, arguments = self._jobs.get(timeout=_KEPT)
            except queue.Empty:
                if self._retired():
                    return
                continue
            try:
                future.set_result(function(*arguments))
            except BaseException as error:  # noqa: B036 - raised in the thread that waits
                future.set_exception(error)
            # Results may be large, and the next job may be long in coming.
            del future, function, arguments

    def _retired(self) -> bool:
        """Removes the thread from the idle ones, unless a job is about to be given to it; returns whether it did."""
        with _lock:
            idle = self in _idle
            if idle:
                _idle.remove(self)
        return idle


_idle: list[_ReaderThread] = register_state("reading threads without work", [], kept="they end after seconds")
_stuck: weakref.WeakKeyDictionary[Infeed, _ReaderThread] = register_state(
    "abandoned reading threads by infeed", weakref.WeakKeyDictionary(), kept="they read the infeed still"
)
"""Abandoned threads by the infeed that they are still reading; no other thread reads it meanwhile."""
_lock = threading.Lock()


class TimedRead(Generic[T]):
    """Function that reads elements, started in a worker thread; its result is awaited with a timeout.

    Args:
        infeeds: the infeeds that it reads from.
        function: the function.
        *arguments: its arguments.
    """

    def __init__(self, infeeds: Collection[Infeed], function: Callable[..., T], *arguments: Any) -> None:
        self._infeeds = infeeds
        with _lock:
            self._worker = _idle.pop() if _idle else _ReaderThread()
        self._future: concurrent.futures.Future[T] = self._worker.submit(function, *arguments)

    def result(self) -> T:
        """Waits for the function's result. May be called once.

        Raises:
            InfeedTimeout: if no element arrived for as long as `environment.feed_timeout` says.
            BaseException: exceptions of the function.
        """
        while not self._finished_within(self._timeout_seconds()):
            wait, now = self._wait(), time.monotonic()
            if wait is not None and now - wait.since >= feed_timeout():
                with _lock:
                    _stuck.update((infeed, self._worker) for infeed in self._infeeds if infeed not in _stuck)
                raise InfeedTimeout(wait.queue, wait.element, now - wait.since)
        with _lock:
            _idle.append(self._worker)
        return self._future.result()

    def _finished_within(self, seconds: float) -> bool:
        with contextlib.suppress(concurrent.futures.TimeoutError):
            self._future.exception(seconds)
        return self._future.done()

    def _wait(self) -> _PendingRead | None:
        """Returns the present wait: of the own thread, or of one that has been reading an infeed for longer."""
        with _lock:
            waits = [self._worker.wait(), *(_stuck[i].wait() for i in self._infeeds if i in _stuck)]
        names = {infeed.name for infeed in self._infeeds}
        return next((wait for index, wait in enumerate(waits) if wait and (index == 0 or wait.queue in names)), None)

    def _timeout_seconds(self) -> float:
        """Returns the seconds until the timeout may be reached."""
        wait = self._wait()
        begun = time.monotonic() if wait is None else wait.since
        return max(begun + feed_timeout() - time.monotonic(), 0.01)


def next_element(infeed: Infeed) -> Element:
    """Dequeues the next element of an infeed, with the timeout.

    Raises:
        InfeedExhausted: at the end of the data.
        InfeedTimeout: if none arrived for as long as `environment.feed_timeout` says.
    """
    return TimedRead([infeed], infeed.next).result()
