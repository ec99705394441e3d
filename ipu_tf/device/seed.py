"""The seed of each device: where stateful random ops draw from.

Every execution takes the next seed of its device; the same start gives the same sequence.
"""

from __future__ import annotations

import secrets
import threading

import numpy as np

_lock = threading.Lock()
_next: dict[int, tuple[int, int]] = {}


def reset_seed(seed: int, ordinal: int = 0) -> None:
    """Starts the sequence of `/device:IPU:<ordinal>` again from `seed`."""
    with _lock:
        _next[ordinal] = (seed & 0xFFFFFFFF, 0)


def next_seed(ordinal: int = 0) -> np.ndarray:
    """A key for one execution: `uint32[2]`, as JAX's threefry generator takes it."""
    with _lock:
        seed, count = _next.get(ordinal) or (secrets.randbits(32), 0)
        _next[ordinal] = (seed, count + 1)
    return np.array([seed, count], np.uint32)
