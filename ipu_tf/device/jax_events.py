"""Listens to JAX's events, until the project's patches are uninstalled."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax

from ipu_tf._patches.installation import change

_TARGET = "jax.monitoring:register_event_duration_secs_listener"


#: Is called with the event's name, how long it took in seconds, and what JAX says about it by keyword.
Listener = Callable[..., None]


def listen(listener: Listener) -> None:
    """Registers a listener with JAX, unless it is registered already; threads may call this at once.

    Args:
        listener: called after each event, in the thread in which it took place.
    """
    register = jax.monitoring.register_event_duration_secs_listener
    change(_TARGET, functools.partial(register, listener), functools.partial(_stop, listener), listener)


def _stop(listener: Listener) -> None:
    jax.monitoring.unregister_event_duration_listener(listener)
