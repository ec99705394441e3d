"""The queues of this process, by name: compiled programs name a queue, and find it here when they run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ipu_tf.device.errors import UnknownQueue
from ipu_tf.device.infeed import Infeed
from ipu_tf.device.outfeed import Outfeed

_lock = threading.Lock()
_infeeds: dict[str, Infeed] = {}
_outfeeds: dict[str, Outfeed] = {}


def add_infeed(infeed: Infeed) -> None:
    """Makes an infeed known; a queue of the same name is replaced."""
    with _lock:
        _infeeds[infeed.name] = infeed


def add_outfeed(outfeed: Outfeed) -> None:
    """Makes an outfeed known; a queue of the same name is replaced."""
    with _lock:
        _outfeeds[outfeed.name] = outfeed


def infeed(name: str) -> Infeed:
    """The infeed of this name.

    Raises:
        UnknownQueue: if there is none.
    """
    with _lock:
        if name not in _infeeds:
            raise UnknownQueue("infeed", name)
        return _infeeds[name]


def outfeed(name: str) -> Outfeed:
    """The outfeed of this name.

    Raises:
        UnknownQueue: if there is none.
    """
    with _lock:
        if name not in _outfeeds:
            raise UnknownQueue("outfeed", name)
        return _outfeeds[name]


def remove(name: str) -> bool:
    """Forgets a queue; gives whether it existed."""
    with _lock:
        # An empty queue counts too, though it is false as a bool.
        removed = (_infeeds.pop(name, None), _outfeeds.pop(name, None))
        return any(queue is not None for queue in removed)


_running = threading.Condition()
_programs = 0


@contextlib.contextmanager
def program_running() -> Iterator[None]:
    """Within it, one more program is running."""
    global _programs
    with _running:
        _programs += 1
    try:
        yield
    finally:
        with _running:
            _programs -= 1
            _running.notify_all()


def wait_for_programs() -> None:
    """Returns when no program is running."""
    with _running:
        _running.wait_for(lambda: _programs == 0)
