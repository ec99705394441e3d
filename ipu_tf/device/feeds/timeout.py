"""Reads infeed elements in threads, with a timeout (`InfeedTimeout`).

Reading an element may block for ever: a generator that waits for a message, a file on a server that is gone. Python
cannot interrupt it, so elements are read in threads of their own, and a program raises an error after some time
without an element. The blocked thread is abandoned: it ends when its element arrives, which stays in the infeed.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from ipu_tf._state.registry import register_state
from ipu_tf.device.environment import feed_timeout
from ipu_tf.device.errors import InfeedTimeout
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.reader_threads import reader_thread
from ipu_tf.device.feeds.reading import Element, Reading, Slot

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


_POLL = 0.1
"""Seconds after which a program that waits for an element looks for Ctrl-C again."""
_PATIENCE = 0.5
"""Seconds that a program waits for the present element after Ctrl-C."""


class ReadInterrupted(KeyboardInterrupt):
    """Raised where Ctrl-C ends the wait for an element: the first one, which `Interrupts` notes."""


def never() -> bool:
    """Says that nothing was interrupted."""
    return False


class TimedRead(Generic[T]):
    """Function that reads elements, started in a worker thread; its result is awaited with a timeout.

    Args:
        infeeds: the infeeds that it reads from.
        function: the function.
        *arguments: its arguments.
    """

    def __init__(self, infeeds: Collection[Infeed], function: Callable[..., T], *arguments: Any) -> None:
        self._infeeds = infeeds
        self._began = time.monotonic()
        self._worker = reader_thread()
        self._future: concurrent.futures.Future[T] = self._worker.submit(function, *arguments)

    def result(self, interrupted: Callable[[], bool] = never, stop: Callable[[], None] = lambda: None) -> T:
        """Waits for the function's result. May be called once.

        Args:
            interrupted: whether Ctrl-C was pressed.
            stop: called once it was, to have the function end with the present element.

        Raises:
            InfeedTimeout: if no element arrived for as long as `environment.feed_timeout` says.
            ReadInterrupted: if none arrived soon after Ctrl-C.
            BaseException: exceptions of the function.
        """
        stopped: float | None = None
        while True:
            if stopped is None and interrupted():
                stopped = time.monotonic()
                stop()
            if self._finished_within(self._seconds_to_wait(stopped, interrupted)):
                return self._future.result()
            if stopped is not None and time.monotonic() - stopped >= _PATIENCE:
                raise ReadInterrupted
            self._check_timeout()

    def _check_timeout(self) -> None:
        now, wait = time.monotonic(), self._wait()
        if wait is not None and now - max(wait.since, self._began) >= feed_timeout():
            raise InfeedTimeout(wait.queue, wait.element, now - wait.since)

    def _finished_within(self, seconds: float) -> bool:
        with contextlib.suppress(concurrent.futures.TimeoutError):
            self._future.exception(seconds)
        return self._future.done()

    def _wait(self) -> _PendingRead | None:
        """Returns the present wait: of the own thread, or of another that reads an infeed, which the own waits for."""
        readers = (self._worker.ident, *(infeed.reader for infeed in self._infeeds))
        waits = (_waits.get(reader) for reader in readers if reader is not None)
        return next((wait for wait in waits if wait is not None), None)

    def _seconds_to_wait(self, stopped: float | None, interrupted: Callable[[], bool]) -> float:
        """Returns the seconds until the timeout may be reached, or Ctrl-C is to be looked for."""
        wait = self._wait()
        begun = time.monotonic() if wait is None else max(wait.since, self._began)
        left = begun + feed_timeout() - time.monotonic()
        if stopped is not None:
            left = min(left, stopped + _PATIENCE - time.monotonic())
        elif interrupted is not never:
            left = min(left, _POLL)
        return max(left, 0.01)


def next_element(infeed: Infeed, interrupted: Callable[[], bool] = never) -> Element:
    """Dequeues the next element of an infeed, with the timeout. One that is late, or fails, stays in the infeed.

    Args:
        infeed: the infeed.
        interrupted: whether Ctrl-C was pressed; it ends the wait.

    Raises:
        InfeedExhausted: at the end of the data.
        InfeedTimeout: if none arrived for as long as `environment.feed_timeout` says.
        KeyboardInterrupt: if none arrived soon after Ctrl-C.
    """
    reading = Reading()
    slot = Slot(reading)
    read = TimedRead([infeed], infeed.read, slot.store)
    try:
        read.result(interrupted)
    except BaseException as error:
        reading.abandon()
        if slot.element is not None:
            infeed.return_element(slot.element)
        infeed.take_error(error)
        if isinstance(error, ReadInterrupted):
            raise KeyboardInterrupt from None
        raise
    assert slot.element is not None
    return slot.element
