"""Calls a callback with each step's outputs, in a thread, while the program runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

import numpy as np

from ipu_tf.device.feeds.outfeed import Outfeed

Arrays = tuple[np.ndarray, ...]


class OutputStream:
    """A context manager that calls a function with each element of an outfeed, in order, in a thread.

    Its thread ends with it, after the last element; what the function raised is raised then, unless the block raised.

    Args:
        outfeed: the outfeed. Its elements stay in it.
        take: gets one element at a time, an array for each tensor. After it raised it gets no more.
    """

    def __init__(self, outfeed: Outfeed, take: Callable[[Arrays], None]) -> None:
        self._outfeed = outfeed
        self._take = take
        self._blocks: queue.SimpleQueue[Arrays | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._deliver, name="ipu-step-outputs", daemon=True)

    def __enter__(self) -> OutputStream:
        self._outfeed.on_block = self._blocks.put
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._outfeed.on_block = None
        self._blocks.put(None)
        self._thread.join()
        if error is None:
            self.check()

    def check(self) -> None:
        """Raises the error of the function, if it raised one."""
        if self._error is not None:
            raise self._error

    def put_outputs(self, arrays: Sequence[np.ndarray]) -> None:
        """Delivers outputs that did not come from the outfeed: `[n, *shape]` arrays."""
        self._blocks.put(tuple(arrays))

    def _deliver(self) -> None:
        for block in iter(self._blocks.get, None):
            try:
                # An element of no tensors is one too: stepwise loops enqueue one at a time.
                for index in range(len(block[0]) if block else 1):
                    self._take(tuple(array[index] for array in block))
            except BaseException as error:  # noqa: B036 - raised in the thread that runs the program
                self._error = error
                return
