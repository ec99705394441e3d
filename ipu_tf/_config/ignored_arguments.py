"""Records function arguments that have no effect; `emulation.ignored_arguments()` lists them."""

from __future__ import annotations

import dataclasses
import logging
import threading
from typing import Any

from ipu_tf._state.registry import register_state

_log = logging.getLogger("ipu_tf")
_lock = threading.Lock()
_seen: dict[str, IgnoredArgument] = register_state("arguments without effect", {})


@dataclasses.dataclass(frozen=True)
class IgnoredArgument:
    """An argument that was given and has no effect in emulation.

    Attributes:
        name: function and argument, e.g. `pipeline.offload_activations`.
        value: the value last given, as text.
        reason: why nothing comes of it.
    """

    name: str
    value: str
    reason: str


def record_ignored(name: str, value: Any, reason: str = "it only concerns IPU hardware") -> None:
    """Records that an argument has no effect; logs it the first time.

    Args:
        name: function and argument, e.g. `pipeline.offload_activations`.
        value: what was given; None is not noted, since nothing was asked for.
        reason: why nothing comes of it.
    """
    if value is None:
        return
    with _lock:
        known = name in _seen
        _seen[name] = IgnoredArgument(name, repr(value), reason)
    if not known:
        _log.info("%s=%r has no effect in emulation: %s.", name, value, reason)


def ignored_arguments() -> tuple[IgnoredArgument, ...]:
    """Lists every argument that was given in this process and has no effect, by name.

    Example:
        >>> from ipu_tf.emulation import ignored_arguments, record_ignored
        >>> record_ignored("pipeline.offload_weights", True)
        >>> [item.value for item in ignored_arguments() if item.name == "pipeline.offload_weights"]
        ['True']
    """
    with _lock:
        return tuple(_seen[name] for name in sorted(_seen))
