"""JAX's effects: which call the host, a reset after a failed callback; whether JAX's backends have started.

With `jax_compilation` and `exported_module`, the files of the device that use JAX's private API;
`tests/project/test_private_api.py` watches them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator

from jax._src import callback, dispatch, xla_bridge

_CALLBACK_LOG = "jax._src.callback"


@contextlib.contextmanager
def silence_callback_errors() -> Iterator[None]:
    """Context manager: JAX does not log the traceback of a failed callback, which is raised elsewhere."""
    log = logging.getLogger(_CALLBACK_LOG)
    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was


def any_calls_host(effects: Iterable[object]) -> bool:
    """Returns whether one of a jaxpr's effects is a callback to the host. Sums over replicas are effects as well."""
    return any(isinstance(effect, callback.IOEffect | callback.OrderedIOEffect) for effect in effects)


def reset_ordered_effects() -> None:
    """Clears JAX's tokens of ordered effects, so that a failed program does not make the next one fail."""
    dispatch.runtime_tokens.clear()


def backends_started() -> bool:
    """Returns whether JAX has initialized its backends, and with them its threads."""
    return bool(xla_bridge.backends_are_initialized())
