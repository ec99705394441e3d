"""Ctrl-C in tests: pressed by the test, with Python's own handler, as in a program of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest


@pytest.fixture
def sigint_interrupts() -> Iterator[None]:
    """SIGINT interrupts, and its handler is in place again at the end: processes that share out tests ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def press_ctrl_c() -> None:
    """Sends SIGINT to this process."""
    os.kill(os.getpid(), signal.SIGINT)


def press_when_it_waits() -> None:
    """Presses Ctrl-C as soon as what the test calls next notes it; gives up after half a minute.

    Before that it may be lost: Python ignores what is raised in a finalizer, such as those of other tests' garbage.
    """

    def work() -> None:
        latest = time.monotonic() + 30
        while signal.getsignal(signal.SIGINT) is signal.default_int_handler and time.monotonic() < latest:
            time.sleep(0.05)
        if time.monotonic() < latest:
            press_ctrl_c()

    threading.Thread(target=work, daemon=True).start()


class PressesAtItsEnd:
    """An object whose finalizer presses Ctrl-C, where Python ignores the exception."""

    def __del__(self) -> None:
        """Presses it."""
        press_ctrl_c()
        time.sleep(0.01)
