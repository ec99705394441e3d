"""`TokenIterator`: the tokens that `generate` makes, one place after the other, while the loop runs on the device.

thread of its own: generate(...) --> queue --> next(tokens)
"""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ipu_tf._loops.interruption import InterruptibleCall, check_interrupts
from keras_ipu.generation.token_stream import OnTokens
from keras_ipu.training.common.running_streams import POLL_SECONDS, wait_for_end


class TokenIterator(Iterator[np.ndarray]):
    """Iterates over tokens, an int32 array `[batch]` for each place: `generate(..., stream=True)` returns it.

    The loop does not wait for the iterator, and goes on if it is dropped.

    Args:
        generate: generates, and calls a function with the tokens of each place.

    Attributes:
        thread: in which it does.
        done: set when it has ended. A `join` of the thread that Ctrl-C ends would have it stopped, for Python 3.11.

    Raises:
        Exception: where the next token is asked for, what `generate` raised.
    """

    def __init__(self, generate: Callable[[OnTokens], Any]) -> None:
        self._queue: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()
        self._taken: list[np.ndarray | None] = []
        self._generate, self._ended = generate, False
        self._error: BaseException | None = None
        self._result: Any = None
        context = contextvars.copy_context()
        self.done = threading.Event()
        self.thread = threading.Thread(target=context.run, args=(self._run,), name="ipu-generate")
        self.thread.start()

    def _run(self) -> None:
        try:
            self._result = self._generate(self._queue.put)
        except BaseException as error:  # noqa: B036 - raised in the thread that asks for tokens
            self._error = error
        finally:
            self._queue.put(None)
            self.done.set()

    def __next__(self) -> np.ndarray:
        tokens = None if self._ended else self._next_of_queue()
        if tokens is not None:
            return tokens
        self._ended = True
        self.wait()
        if self._error is not None:
            raise self._error
        raise StopIteration

    def _next_of_queue(self) -> np.ndarray | None:
        """Waits for what is next. Ctrl-C ends the wait, and loses nothing: what was taken before is next again."""
        with InterruptibleCall():
            while not self._taken:
                check_interrupts()
                with contextlib.suppress(queue.Empty):
                    self._taken.append(self._queue.get(timeout=POLL_SECONDS))
        return self._taken.pop()

    def wait(self) -> None:
        """Waits until the loop has ended. Does not raise what it raised.

        Raises:
            KeyboardInterrupt: if Ctrl-C is pressed. The loop goes on.
        """
        wait_for_end(self.done)

    def result(self) -> Any:
        """Waits for the end, and returns what `generate` returns without `stream`; tokens that were not asked for stay.

        Raises:
            Exception: what `generate` raised.
        """
        self.wait()
        if self._error is not None:
            raise self._error
        return self._result
