"""Runs steps ahead of Keras's loop when no callback is called between them.

    Keras asks for step   0 | 1       | 2 | 3               | 4 | 5 | 6 | 7 ...
    the device runs       0 | 1 2     |   | 3 4 5 6         |   |   |   | 7 ...
                            | logs of 2 wait | logs of 4, 5 and 6 wait

Every step returns the logs that it returns alone. The model's variables are not read between two steps: no callback but
Keras's own progress bar is called for batches, the data are arrays or a `tf.data.Dataset`, and no step calls the host.
All steps of an epoch have run when it ends.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator
from typing import Any

from ipu_tf._state.context import context_value
from keras_ipu.training.common.epoch_iterator import ElementIterator

#: Seconds that a run ahead may take: a progress bar shows its news as often, and Ctrl-C waits as long.
PAUSE = 0.1
#: Most steps of a run ahead, and most bytes of what they return.
_STEPS, _BYTES = 1024, 1 << 20
_STOPS = {"train": "stop_training", "test": "stop_evaluating", "predict": "stop_predicting"}
"""Attributes of a model that end a run of a kind of step. Keras looks at them after each step."""

_unwatched: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_unwatched", default=False)


class StepsAhead:
    """Number of steps to run ahead: at most twice the largest so far, for about `PAUSE` seconds.

    >>> length, lengths = StepsAhead(), []
    >>> for left in (10, 9, 7, 3):
    ...     with length.timed(left, output_bytes=8) as steps:
    ...         lengths.append(steps)
    >>> lengths
    [1, 2, 4, 3]
    """

    def __init__(self) -> None:
        self._steps = 1

    @contextlib.contextmanager
    def timed(self, left: int, output_bytes: int) -> Iterator[int]:
        """Context that yields the number of steps to run and times them for the next number.

        Args:
            left: how many may run.
            output_bytes: bytes of what one step returns.
        """
        steps = max(1, min(self._steps, left, _BYTES // max(1, output_bytes)))
        began = time.perf_counter()
        yield steps
        within = int(steps * PAUSE / max(time.perf_counter() - began, 1e-6))
        self._steps = max(1, min(within, max(2 * steps, self._steps), _STEPS))


def without_batch_callbacks(none: bool) -> contextlib.AbstractContextManager[None]:
    """Context in which no callback of this thread's run is called for batches, except Keras's own."""
    return context_value(_unwatched, none)


def steps_left(iterator: Any, model: Any, kind: str) -> int:
    """Returns the steps of an epoch that may run ahead, including the one that Keras asks for now.

    Args:
        iterator: of the epoch's batches.
        model: that runs. Where it was told to stop already, Keras asks for no step after this one.
        kind: of its step: "train", "test" or "predict".
    """
    left = iterator.left if isinstance(iterator, ElementIterator) else None
    ahead = _unwatched.get() and not getattr(model, _STOPS[kind], False)
    return left if left is not None and ahead else 1
