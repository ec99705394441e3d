"""Destroys tf.data iterators in background threads, since their destruction may take up to a minute.

The destructor of a tf.data iterator waits for its autotuning thread. That thread may miss the notification, and then
sleeps for its whole interval, which doubles up to a minute. Every epoch would end with that wait, and so would the
process: iterators that are left at its exit are not destroyed at all.

    owner is collected --1 s--> its object is destroyed in a thread of its own, however long that takes
    owner is collected --1 s--> the next object does not wait for it
    owner is collected --1 s--> something else refers to the object still --1 s--> destroyed, or looked at again

Whoever drops the last reference destroys the object, so the last reference is this module's. Python's garbage collector
calls back when it finds an owner, long before it drops what the owner refers to.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import queue
import sys
import threading
import time
import weakref
from typing import Any

from ipu_tf._state.registry import register_state

_KEPT = 1.0
"""Seconds from the collection of an owner to the destruction of its object; a process that ends by then leaves it."""

_MOST = 4
"""Most iterators that wait for that: each iterator has threads of its own."""

_Ended = tuple[float, list[Any]]
"""When an object is due, and the object, in a list of its own: `_is_last` counts references."""

_ended: queue.SimpleQueue[_Ended] = register_state(
    "objects that wait to be destroyed", queue.SimpleQueue(), kept="they are destroyed soon"
)
_begun = threading.Lock()
"""Taken for good by who starts the thread that takes from the queue."""
_process_ends = register_state("whether the process ends", threading.Event(), kept="it is set once")
_starting = threading.Lock()
"""Held while a thread for an iterator starts; taken for good when the process ends."""
_at_work: set[threading.Thread] = register_state("threads that destroy objects", set(), kept="each ends itself")


def destroy_in_background(owner: Any, iterator: Any) -> None:
    """Destroys an object in a background thread after its owner is collected; the caller does not wait.

    Args:
        owner: object that refers to `iterator` now; supports weak references.
        iterator: object that is slow to destroy. It is destroyed when nothing else refers to it.

    >>> class Iterator: pass
    >>> iterator, buffer = Iterator(), bytearray(8)
    >>> destroy_in_background(iterator, buffer)
    """
    if _begun.acquire(blocking=False):
        threading.Thread(target=_destroy, name="ipu-destroy-iterators", daemon=True).start()
    weakref.finalize(owner, _schedule, iterator)


def _schedule(iterator: Any) -> None:
    # Runs wherever the owner happens to end, and a simple queue is safe there; or for all owners at the end.
    if _process_ends.is_set():
        _leak(iterator)
    else:
        _ended.put((time.monotonic() + _KEPT, [iterator]))


def _destroy() -> None:
    waiting: collections.deque[_Ended] = collections.deque()
    while True:
        with contextlib.suppress(queue.Empty):
            _add(waiting, _ended.get(timeout=_left(waiting[0]) if waiting else None))
        for _, iterators in _take_due(waiting):
            if _is_last(iterators):
                with _starting:
                    _start(iterators)
            else:
                waiting.append((time.monotonic() + _KEPT, iterators))


def _add(waiting: collections.deque[_Ended], ended: _Ended) -> None:
    """Adds an object, unless it waits already, since another owner of it ended before."""
    if all(iterators[0] is not ended[1][0] for _, iterators in waiting):
        waiting.append(ended)


def _take_due(waiting: collections.deque[_Ended]) -> list[_Ended]:
    """Removes the objects that are due, the first of too many among them, and returns them."""
    due = max(len(waiting) - _MOST, sum(not _left(each) for each in waiting))
    return [waiting.popleft() for _ in range(due)]


def _left(ended: _Ended) -> float:
    """Returns the seconds until an object is due."""
    return max(0.0, ended[0] - time.monotonic())


def _is_last(iterators: list[Any]) -> bool:
    """Returns whether a list has the only reference to its one object, beside this call's."""
    return sys.getrefcount(iterators[0]) <= 2


def _start(iterators: list[Any]) -> None:
    thread = threading.Thread(target=_end, args=[iterators], name="ipu-destroy-iterator", daemon=True)
    _at_work.add(thread)
    thread.start()


def _end(iterators: list[Any]) -> None:
    iterators.clear()
    _at_work.discard(threading.current_thread())


def _leak(iterator: Any) -> None:
    """Leaks an object: adds a reference that is never released."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(iterator))


@atexit.register
def _abandon_all() -> None:
    """Leaks the objects in the queue, and waits for those that are being destroyed now. Runs at exit.

    Python ends such threads when they return from TensorFlow, which is an uncaught exception for C++: the process
    would be aborted.
    """
    _process_ends.set()
    _starting.acquire()
    with contextlib.suppress(queue.Empty):
        while True:
            _leak(_ended.get_nowait()[1])
    for thread in tuple(_at_work):
        thread.join()
