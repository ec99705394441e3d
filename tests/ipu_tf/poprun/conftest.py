"""Signals of these tests have their default actions."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.helpers.sigint import sigint_interrupts  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def default_signals(sigint_interrupts: None) -> Iterator[None]:  # noqa: F811
    """Processes inherit what is ignored: SIGINT by what a shell runs in the background, SIGHUP under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
