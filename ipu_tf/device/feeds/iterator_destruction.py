"""Lets go of what takes long to end, in threads of its own.

The end of an iterator of tf.data waits for the thread that tunes it. When that thread hears of the end a moment too
early it sleeps on: for as long as it has been asleep before, which doubles up to a minute. An epoch would end with
that wait, and so would the program: what is left when it ends is left to the system.

    owner ends --1 s--> its thing ends in a thread of its own, however long that takes
    owner ends --1 s--> the next thing does not wait for it
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import queue
import threading
import time
import weakref
from typing import Any

_KEPT = 1.0
"""Seconds between the end of an owner and that of its thing, so that nobody who is done with both ends it first."""

_MOST = 4
"""How many things wait for that at most: each iterator has threads of its own."""

_ended: queue.SimpleQueue[tuple[float, Any]] = queue.SimpleQueue()
_begun = threading.Lock()
"""Taken for good by who starts the thread that takes from the queue."""
_process_ends = threading.Event()
_starting = threading.Lock()
"""Held while a thread for a thing starts; taken for good when the process ends."""
_at_work: set[threading.Thread] = set()


def destroy_in_background(owner: Any, thing: Any) -> None:
    """Ends a thing after its owner, in a thread that nobody waits for.

    Args:
        owner: what keeps the thing now; it can be referred to weakly.
        thing: what takes long to end. Whoever else keeps it lets go of it together with the owner, or ends it.

    >>> class Iterator: pass
    >>> iterator, buffer = Iterator(), bytearray(8)
    >>> destroy_in_background(iterator, buffer)
    """
    if _begun.acquire(blocking=False):
        threading.Thread(target=_destroy, name="ipu-letting-go", daemon=True).start()
    weakref.finalize(owner, _later, thing)


def _later(thing: Any) -> None:
    # Runs wherever the owner happens to end, and a simple queue is safe there; or for all owners at the end.
    if _process_ends.is_set():
        _leave(thing)
    else:
        _ended.put((time.monotonic() + _KEPT, thing))


def _destroy() -> None:
    while True:
        due, *things = _ended.get()
        while (left := due - time.monotonic()) > 0 and _ended.qsize() < _MOST:
            time.sleep(min(left, 0.05))
        with _starting:
            _start(things)


def _start(things: list[Any]) -> None:
    thread = threading.Thread(target=_end, args=[things], name="ipu-letting-go-of-one", daemon=True)
    _at_work.add(thread)
    thread.start()


def _end(things: list[Any]) -> None:
    things.clear()
    _at_work.discard(threading.current_thread())


def _leave(thing: Any) -> None:
    """Keeps a thing for ever: one more reference, which nobody has."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


@atexit.register
def _abandon_all() -> None:
    """Leaves what waits in the queue, and waits for what is ending now.

    Python ends such threads when they come back from TensorFlow, and C++ takes that for an exception that nobody
    catches: the process would be aborted.
    """
    _process_ends.set()
    _starting.acquire()
    with contextlib.suppress(queue.Empty):
        while True:
            _leave(_ended.get_nowait()[1])
    for thread in tuple(_at_work):
        thread.join()
