"""Executions of one step that nobody watches run several at a time, before Keras's loop asks for them.

    Keras asks for step   0 | 1       | 2 | 3               | 4 | 5 | 6 | 7 ...
    the device runs       0 | 1 2     |   | 3 4 5 6         |   |   |   | 7 ...
                            | logs of 2 wait | logs of 4, 5 and 6 wait

Every step gives the logs that it gives alone, and what the model's variables are between two steps, nobody asks: no
callback is called for batches but Keras's own progress bar, the data are arrays or a `tf.data.Dataset`, and no step
calls the host. An epoch's steps all ran when it ends.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator
from typing import Any

from keras_ipu.training.common.epoch_iterator import ElementIterator

#: Seconds that a run ahead may take: a progress bar shows its news as often, and Ctrl-C waits as long.
PAUSE = 0.1
#: Most steps of a run ahead, and most bytes of what they return.
_STEPS, _BYTES = 1024, 1 << 20

_unwatched: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_unwatched", default=False)


class StepsAhead:
    """How many steps to run at once: at most twice as many as ever ran, for about `PAUSE` seconds.

    >>> length, lengths = StepsAhead(), []
    >>> for left in (10, 9, 7, 3):
    ...     with length.timed(left, row_bytes=8) as steps:
    ...         lengths.append(steps)
    >>> lengths
    [1, 2, 4, 3]
    """

    def __init__(self) -> None:
        self._steps = 1

    @contextlib.contextmanager
    def timed(self, left: int, row_bytes: int) -> Iterator[int]:
        """Steps to run within it, whose time says how many it will be the next time.

        Args:
            left: how many may run.
            row_bytes: bytes of what one step returns.
        """
        steps = max(1, min(self._steps, left, _BYTES // max(1, row_bytes)))
        began = time.perf_counter()
        yield steps
        within = int(steps * PAUSE / max(time.perf_counter() - began, 1e-6))
        self._steps = max(1, min(within, max(2 * steps, self._steps), _STEPS))


@contextlib.contextmanager
def unwatched(nobody: bool) -> Iterator[None]:
    """Within it, no callback of this thread's `fit`, `evaluate` or `predict` is called for batches, but Keras's own."""
    token = _unwatched.set(nobody)
    try:
        yield
    finally:
        _unwatched.reset(token)


def steps_left(iterator: Any) -> int:
    """Steps of an epoch that may run before Keras asks for them, with the one it asks for now."""
    left = iterator.left if isinstance(iterator, ElementIterator) else None
    return left if left is not None and _unwatched.get() else 1
