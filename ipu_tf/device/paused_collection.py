"""Pauses Python's garbage collector while a program is traced and compiled.

Tracing makes some hundred thousand objects that all stay for a while. Each collection that they set off walks over all
objects of TensorFlow, Keras and JAX: a fifth of the time until the first step of a large network.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

from ipu_tf._state.registry import register_state


class _Pauses:
    """How many pauses there are now, in all threads, and whether the collector was on before the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count, self._was_on = 0, False

    def begin(self) -> None:
        with self._lock:
            if self._count == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._was_on:
                gc.enable()

    def after_fork(self) -> None:
        """Ends the pauses of the parent's threads, in a child."""
        if self._count and self._was_on:
            gc.enable()
        self._lock, self._count = threading.Lock(), 0


_pauses = register_state("pauses of the garbage collector", _Pauses(), kept="each ends itself")
os.register_at_fork(after_in_child=_pauses.after_fork)


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """Context manager, also a decorator: no automatic garbage collection, in any thread, until the last one ends.

    A collector that is off stays off. `gc.collect()` works as ever.
    """
    begun = False
    try:  # around the first line, too: Ctrl-C may raise after it
        _pauses.begin()
        begun = True
        yield
    finally:
        if begun:
            _pauses.end()
