"""How long a program waits for the next element of an infeed: not for ever.

What reads elements may block for good: a generator that waits for a message, a file on a server that is gone. Python
cannot interrupt it, so elements are read in threads of their own, and a program that waits for one gives up after some
time without an element. The thread is left to itself.
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

from ipu_tf.device.environment import feed_timeout
from ipu_tf.device.errors import InfeedTimeout
from ipu_tf.device.feeds.infeed import Element, Infeed

T = TypeVar("T")


class _Wait(NamedTuple):
    """What a thread waits for.

    Attributes:
        queue: the infeed's name.
        element: the number of the element.
        since: when it began, by `time.monotonic`.
    """

    queue: str
    element: int
    since: float


_waits: dict[int, _Wait] = {}
"""What threads wait for now, by their idents."""


@contextlib.contextmanager
def waiting(name: str, element: int) -> Iterator[None]:
    """Within it, this thread waits for an element of an infeed."""
    ident = threading.get_ident()
    _waits[ident] = _Wait(name, element, time.monotonic())
    try:
        yield
    finally:
        del _waits[ident]


def watched(name: Callable[[], str], open_source: Callable[[], Iterator[T]]) -> Callable[[], Iterator[T]]:
    """A source of elements that says for which element it waits.

    Args:
        name: gives the infeed's name.
        open_source: gives an iterator over elements from the start of the data.
    """

    def opened() -> Iterator[T]:
        return elements(open_source())

    def elements(source: Iterator[T]) -> Iterator[T]:
        # Written out: this is run for each element, and with small ones a step is over in tens of microseconds.
        for number in itertools.count():
            ident = threading.get_ident()
            _waits[ident] = _Wait(name(), number, time.monotonic())
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


class _Worker:
    """A thread that does one thing after the other."""

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

    def wait(self) -> _Wait | None:
        """What the thread waits for now."""
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
            except BaseException as error:  # noqa: B036 - handed on to the thread that asked
                future.set_exception(error)
            # Results may be large, and the next job may be long in coming.
            del future, function, arguments

    def _retired(self) -> bool:
        """Leaves the idle threads, so that nobody gives it work any more; not if somebody is about to."""
        with _lock:
            idle = self in _idle
            if idle:
                _idle.remove(self)
        return idle


_idle: list[_Worker] = []
_stuck: weakref.WeakKeyDictionary[Infeed, _Worker] = weakref.WeakKeyDictionary()
"""The threads that were left to themselves, by what they read; they have it to themselves as long as they do."""
_lock = threading.Lock()


class Reading(Generic[T]):
    """Something that reads elements, begun in a thread of its own.

    Args:
        infeeds: what it reads from, as far as that is infeeds.
        function: what to do.
        *arguments: of it.
    """

    def __init__(self, infeeds: Collection[Infeed], function: Callable[..., T], *arguments: Any) -> None:
        self._infeeds = infeeds
        with _lock:
            self._worker = _idle.pop() if _idle else _Worker()
        self._future: concurrent.futures.Future[T] = self._worker.submit(function, *arguments)

    def result(self) -> T:
        """What the function gives. To be asked for once.

        Raises:
            InfeedTimeout: if no element came for as long as `environment.feed_timeout` says.
            BaseException: what the function raises.
        """
        while not self._finished_within(self._patience()):
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

    def _wait(self) -> _Wait | None:
        """What is waited for: by the own thread, or by one that has had an infeed to itself for longer."""
        with _lock:
            waits = [self._worker.wait(), *(_stuck[i].wait() for i in self._infeeds if i in _stuck)]
        names = {infeed.name for infeed in self._infeeds}
        return next((wait for index, wait in enumerate(waits) if wait and (index == 0 or wait.queue in names)), None)

    def _patience(self) -> float:
        """Seconds until it may be time to give up."""
        wait = self._wait()
        begun = time.monotonic() if wait is None else wait.since
        return max(begun + feed_timeout() - time.monotonic(), 0.01)


def next_element(infeed: Infeed) -> Element:
    """The next element of an infeed.

    Raises:
        InfeedExhausted: at the end of the data.
        InfeedTimeout: if none came for as long as `environment.feed_timeout` says.
    """
    return Reading([infeed], infeed.next).result()
