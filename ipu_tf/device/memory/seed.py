"""Random seeds of each device, for stateful random ops.

Every execution takes the next seed of its device; the same start gives the same sequence.
"""

from __future__ import annotations

import secrets
import threading

import numpy as np

from ipu_tf.device.feeds import synthetic

_lock = threading.Lock()
_next: dict[int, tuple[int, int]] = {}
_identical: set[int] = set()
_STREAM_STEP = 0x9E3779B9


def reset_seed(seed: int, ordinal: int = 0, identical_replicas: bool = False) -> None:
    """Resets the seed of `/device:IPU:<ordinal>`: identical for all replicas, or a stream for each."""
    with _lock:
        _next[ordinal] = (seed & 0xFFFFFFFF, 0)
        (_identical.add if identical_replicas else _identical.discard)(ordinal)


def next_seeds(ordinal: int = 0, replicas: int = 1) -> np.ndarray:
    """Returns the next key of each replica for one execution: `uint32[replicas, 2]`, as JAX's threefry takes them.

    Replica 0 draws what a program without replicas draws; every replica draws from a stream of its own, unless
    `reset_seed` set identical ones. Where seeds are synthetic, every execution has the same one.
    """
    fixed = synthetic.seed()
    if fixed is not None:
        return np.tile(fixed, (replicas, 1))
    with _lock:
        seed, count = _next.get(ordinal) or (secrets.randbits(32), 0)
        _next[ordinal] = (seed, count + 1)
        step = 0 if ordinal in _identical else _STREAM_STEP
    return np.array([((seed + step * index) & 0xFFFFFFFF, count) for index in range(replicas)], np.uint32)
