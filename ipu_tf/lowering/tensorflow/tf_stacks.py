"""Patch of TensorFlow: ops of a program that one line of the user's created share one Python stack.

TensorFlow keeps the stack of each op, 60 frames deep below `fit`, and copies the names of its files and functions when
it lowers the op: 12 KB an op, which stay as long as the process. Error messages show the user's line alone.

script ─► fit ─► Keras ─► optimizer ─► op          script ─► fit ─► Keras ─► optimizer ─► op
└──────────── a stack an op ──────────┘             └─ shared ─┘
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tensorflow.python.util import tf_stack as _tf_stack

from ipu_tf._patches.installation import replace_in
from ipu_tf._state.context import context_value
from ipu_tf.device.source_lines import is_user_code


class _LastStack:
    """The stack of the last op, with the innermost frame of the user's and the instruction that this frame was at."""

    def __init__(self) -> None:
        self._of: tuple[FrameType, FrameType | None, int] | None = None
        self._stack: Any = None

    def at(self, frame: FrameType, capture: Callable[[], Any]) -> Any:
        """Returns the stack down to a frame of the user's, by `capture()` unless the last op has the same."""
        place = (frame, frame.f_back, frame.f_lasti)
        if place != self._of:
            self._of, self._stack = place, capture()
        return self._stack


#: A context that traces nothing holds none, so that the frame and what it refers to are dropped after the trace.
_last: contextvars.ContextVar[_LastStack | None] = contextvars.ContextVar("ipu_last_stack", default=None)


@contextlib.contextmanager
def shared_stacks() -> Iterator[None]:
    """Context manager: ops made in this thread have a stack down to the user's innermost frame, shared where equal."""
    replace_in(_tf_stack, "extract_stack", _sharing)
    with context_value(_last, _LastStack()):
        yield


def _sharing(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def extract_stack(stacklevel: int = 1) -> Any:
        last = _last.get()
        if last is None or _in_rewritten_function():
            return stock(stacklevel + 1)
        frame: FrameType | None = sys._getframe(1)
        depth = 3  # frames of TensorFlow's own function, `at` and this one
        while frame is not None and not is_user_code(frame.f_code.co_filename):
            frame, depth = frame.f_back, depth + 1
        return stock(stacklevel + 1) if frame is None else last.at(frame, functools.partial(stock, depth))

    return extract_stack


def _in_rewritten_function() -> bool:
    """Returns whether code that AutoGraph has rewritten is running: TensorFlow leaves out frames there, uncounted."""
    filters = _tf_stack._source_filter_stacks[threading.get_ident()]
    return len(filters) > 1
