"""Ctrl-C in tests: pressed by the test, with Python's own handler, as in a program of its own."""

from __future__ import annotations

import os
import signal
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
