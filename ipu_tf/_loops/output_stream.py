"""Calls a callback with each step's outputs, or what its inner loop enqueues, in a thread, while the program runs."""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np

from ipu_tf._state.context import context_value
from ipu_tf.device.feeds import callbacks
from ipu_tf.device.feeds.outfeed import Outfeed
from ipu_tf.lowering.tensorflow.markers import enqueue_marker

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


_live: contextvars.ContextVar[Mapping[str, Outfeed]] = contextvars.ContextVar(
    "ipu_live_outfeeds", default=MappingProxyType({})
)


def live_outfeeds() -> Mapping[str, Outfeed]:
    """Returns the outfeeds by name whose elements are taken in this thread's context: a loop is passed them."""
    return _live.get()


class LiveOutfeed:
    """An outfeed of loops inside of steps, whose elements reach the host while the loop runs.

    Each execution has one of its own: threads may run one loop.

    Args:
        name: of the outfeed in the programs; unique in the process.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def enqueue_tensor(self, tensor: Any) -> None:
        """Enqueues an element in a step that TensorFlow traces. At most once a program."""
        enqueue_marker(self._name, [tensor])

    def enqueue_array(self, array: Any, replicas: int) -> None:
        """Enqueues an element in a step that JAX traces, for so many replicas."""
        callbacks.enqueue(self._name, [array], replicas)

    @contextlib.contextmanager
    def taken(self, take: Callable[[Arrays], None]) -> Iterator[None]:
        """Context of an execution whose elements a function takes, in a thread of its own.

        Args:
            take: gets one element at a time; with several replicas with a leading axis. What it raises is raised at the
                end of the context.
        """
        outfeed = Outfeed(self._name)
        with context_value(_live, {**_live.get(), self._name: outfeed}), OutputStream(outfeed, take):
            yield
