"""Random seeds of each device, for stateful random ops.

Every execution takes the next seed of its device; the same start gives the same sequence. Without a start given, it is
a random one.
"""

from __future__ import annotations

import secrets
import threading
from typing import NamedTuple

import numpy as np

from ipu_tf._state.registry import register_state
from ipu_tf.device.feeds import synthetic
from ipu_tf.device.instances.across import first_replica, given_to_all


class _Sequence(NamedTuple):
    """Seed of a device, number of executions since, whether replicas have identical ones, whether it was given."""

    seed: int
    executions: int = 0
    identical: bool = False
    given: bool = True


_lock = threading.Lock()
_ALL = -1
"""In place of an ordinal: the sequence of devices that have none of their own."""
_next: dict[int, _Sequence] = register_state("random seeds of devices", {})
"""By ordinal."""
_STREAM_STEP, _DEVICE_STEP = 0x9E3779B9, 0x85EBCA6B
"""Between the seeds of replicas, and of devices: odd, so that 2**32 of them differ."""


def reset_seed(seed: int, ordinal: int = 0, identical_replicas: bool = False) -> None:
    """Resets the seed of `/device:IPU:<ordinal>`: identical for all replicas, or a stream for each."""
    with _lock:
        _next[ordinal] = _Sequence(seed & 0xFFFFFFFF, identical=identical_replicas)


def reset_all_seeds(seed: int | None) -> None:
    """Resets the seeds of all devices, each to one of its own made from `seed`; with None, to random ones."""
    with _lock:
        _next.clear()
        if seed is not None:
            _next[_ALL] = _Sequence(seed & 0xFFFFFFFF)


def is_seeded(ordinal: int) -> bool:
    """Returns whether a device's seed was given, so that its executions are to draw the same numbers each time."""
    with _lock:
        sequence = _next.get(ordinal) or _next.get(_ALL)
    return sequence is not None and sequence.given


def seeds_state() -> list[tuple[int, int, int, bool, bool]]:
    """Returns where the sequences of all devices are: ordinal, seed, executions, identical replicas, given."""
    with _lock:
        return [(ordinal, *sequence) for ordinal, sequence in sorted(_next.items())]


def restore_seeds(state: list[tuple[int, int, int, bool, bool]]) -> None:
    """Sets the sequences of all devices to where `seeds_state` found them."""
    with _lock:
        _next.clear()
        _next.update({each[0]: _Sequence(*each[1:]) for each in state})


def next_seeds(ordinal: int = 0, replicas: int = 1) -> np.ndarray:
    """Returns the next key of each replica for one execution: `uint32[replicas, 2]`, as JAX's threefry takes them.

    Replica 0 draws what a program without replicas draws; every replica draws from a stream of its own, unless
    `reset_seed` set identical ones. Where seeds are synthetic, every execution has the same one.
    """
    fixed = synthetic.seed()
    if fixed is not None:
        return np.tile(fixed, (replicas, 1))
    with _lock:
        sequence = _next.get(ordinal) or _first_of(ordinal)
        _next[ordinal] = sequence._replace(executions=sequence.executions + 1)
    seed, count, identical, _ = sequence
    step = 0 if identical else _STREAM_STEP
    first = first_replica(replicas)
    return np.array([((seed + step * (first + own)) & 0xFFFFFFFF, count) for own in range(replicas)], np.uint32)


def shared_seed(seeds: np.ndarray) -> np.ndarray:
    """Returns the key of one execution that all replicas share, those of other instances too: `uint32[2]`.

    It is instance 0's: the others ask for it, as each may have been given another seed, or none.

    Args:
        seeds: what `next_seeds` gave for the execution.
    """
    return given_to_all(seeds[0], "the seed of what all replicas draw")


def _first_of(ordinal: int) -> _Sequence:
    """Returns the start of a device that has none of its own; `/device:IPU:0` takes the seed of all as it is."""
    for_all = _next.get(_ALL)
    if for_all is None:
        return _Sequence(secrets.randbits(32), given=False)
    return for_all._replace(seed=(for_all.seed + _DEVICE_STEP * ordinal) & 0xFFFFFFFF)
