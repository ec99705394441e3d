"""Threads in which models run beside the program: what runs or changes such a model waits for their end.

    generate(stream=True) --> begins(model, thread, done)
    fit, compile, quantize, load_weights, generate, ... --> wait_for_streams(model)

A loop on the device has the weights of its begin, and gives its state back at its end.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from ipu_tf._loops.interruption import InterruptibleCall, check_interrupts
from ipu_tf._state.registry import register_state

POLL_SECONDS = 0.05
"""How often a wait looks whether Ctrl-C was pressed."""

_running: weakref.WeakKeyDictionary[Any, tuple[threading.Thread, threading.Event]] = register_state(
    "threads in which models run", weakref.WeakKeyDictionary(), kept="they run still"
)


def begins(model: Any, thread: threading.Thread, done: threading.Event) -> None:
    """Notes that a model runs in a thread, which was started, until `done` is set."""
    _running[model] = (thread, done)


def wait_for_streams(model: Any) -> None:
    """Waits until no other thread runs a model that is this one, or that shares variables with it.

    Raises:
        KeyboardInterrupt: if Ctrl-C is pressed. The other thread goes on.
    """
    if not _running:
        return
    with InterruptibleCall():  # also where a finalizer runs just then, in which Python ignores exceptions
        for other, (thread, done) in [*_running.items()]:
            if done.is_set() or not thread.is_alive():  # in a forked process there are no threads
                _running.pop(other, None)
            elif thread is not threading.current_thread() and (other is model or _variables(other) & _variables(model)):
                wait_for_end(done)


def wait_for_end(done: threading.Event) -> None:
    """Waits until a thread has set that it is done.

    Raises:
        KeyboardInterrupt: if Ctrl-C is pressed.
    """
    with InterruptibleCall():
        while not done.wait(POLL_SECONDS):
            check_interrupts()


def _variables(model: Any) -> set[int]:
    return {id(variable) for variable in model.variables}


def after_streams(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    """Replaces a method that changes a model."""
    wait_for_streams(model)
    return stock(model, *args, **kwargs)
