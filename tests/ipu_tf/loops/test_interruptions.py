"""Ctrl-C at random moments ends every kind of run soon, and leaves the model usable."""

from __future__ import annotations

import signal

from tests.helpers.interruptions import interruptions


def test_each_kind_of_run_ends_soon() -> None:
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        found = interruptions(4)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert [one for one in found if one.seconds > 2] == []
    assert {one.kind for one in found} == {"loop", "feedless loop", "pipeline", "compile"}
