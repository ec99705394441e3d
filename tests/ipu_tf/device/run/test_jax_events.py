"""Listeners to JAX's events are registered once, whichever threads ask for it."""

from __future__ import annotations

import threading
from typing import Any

import jax
import pytest

from ipu_tf._patches import installation
from ipu_tf.device import jax_events


def test_two_threads_register_a_listener_once(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Any] = []
    both = threading.Event()

    def register(listener: Any) -> None:
        registered.append(listener)
        if len(registered) == 2:
            both.set()
        both.wait(0.5)  # long enough for the other thread to come here, if nothing holds it

    def heard(event: str, duration_secs: float, **about: str | int) -> None:
        """Hears nothing."""

    monkeypatch.setattr(jax.monitoring, "register_event_duration_secs_listener", register)
    monkeypatch.setattr(installation, "_INSTALLED", {})
    threads = [threading.Thread(target=jax_events.listen, args=(heard,), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert registered == [heard]
