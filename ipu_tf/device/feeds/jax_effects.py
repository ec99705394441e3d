"""JAX's record of ordered effects, which a failed callback leaves behind poisoned; and whether JAX has started.

With `jax_compilation` and `exported_module`, the files of the device that reach beyond JAX's public interface;
`tests/project/test_private_api.py` watches them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from jax._src import dispatch, xla_bridge

_CALLBACK_LOG = "jax._src.callback"


@contextlib.contextmanager
def silence_callback_errors() -> Iterator[None]:
    """Within it, JAX does not log the traceback of a callback that fails: whoever runs the program raises it."""
    log = logging.getLogger(_CALLBACK_LOG)
    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was


def reset_ordered_effects() -> None:
    """Drops what JAX remembers of ordered effects, so that a program that failed does not fail the next one too."""
    dispatch.runtime_tokens.clear()


def backends_started() -> bool:
    """Whether JAX has made its devices, and with them its threads."""
    return bool(xla_bridge.backends_are_initialized())
