"""Scopes that say where a part of a program goes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf

_local = threading.local()


@contextlib.contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Ops made within it belong to an emulated IPU. Compile them with `ipu_compiler.compile`.

    Args:
        device: e.g. `/device:IPU:0`.

    Example:
        >>> from ipu_tf.scopes import ipu_scope
        >>> with ipu_scope("/device:IPU:0"):
        ...     pass
    """
    devices = _stack()
    devices.append(device)
    try:
        with tf.device(device):
            yield
    finally:
        devices.pop()


def _stack() -> list[str]:
    if not hasattr(_local, "devices"):
        _local.devices = []
    return _local.devices
