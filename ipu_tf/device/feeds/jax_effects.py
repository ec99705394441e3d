"""JAX's effects: which call the host, a reset after a failed callback; whether JAX's backends have started.

With `jax_compilation` and `exported_module`, the files of the device that use JAX's private API;
`tests/project/test_private_api.py` watches them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator

from jax._src import callback, dispatch, xla_bridge

from ipu_tf._state.registry import register_state

_CALLBACK_LOG = "jax._src.callback"


class _Silence:
    """How many executions silence JAX's log of callbacks now, and whether it was off before the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log = logging.getLogger(_CALLBACK_LOG)
        self._count, self._was_off = 0, False

    def begin(self) -> None:
        with self._lock:
            if self._count == 0:
                self._was_off, self._log.disabled = self._log.disabled, True
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._log.disabled = self._was_off


_silence = register_state("executions that silence JAX's log", _Silence(), kept="each ends itself")


@contextlib.contextmanager
def silence_callback_errors() -> Iterator[None]:
    """Context manager: JAX does not log the traceback of a failed callback, which is raised elsewhere."""
    _silence.begin()
    try:
        yield
    finally:
        _silence.end()


def any_calls_host(effects: Iterable[object]) -> bool:
    """Returns whether one of a jaxpr's effects is a callback to the host. Sums over replicas are effects as well."""
    return any(isinstance(effect, callback.IOEffect | callback.OrderedIOEffect) for effect in effects)


def reset_ordered_effects() -> None:
    """Clears JAX's tokens of ordered effects, so that a failed program does not make the next one fail."""
    dispatch.runtime_tokens.clear()


def backends_started() -> bool:
    """Returns whether JAX has initialized its backends, and with them its threads."""
    return bool(xla_bridge.backends_are_initialized())
