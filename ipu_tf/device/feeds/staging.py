"""Staging buffers: elements of a chunk stacked in aligned host memory, which a loop slices; how many a chunk has."""

from __future__ import annotations

import dataclasses

import numpy as np

from ipu_tf.device.program.program import Types
from ipu_tf.device.program.replicas import Replicas

CHUNK_BYTES = 32 << 20
"""Most bytes of one staged chunk; two chunks exist at a time, one being filled while the device reads the other."""
CHUNK_STEPS = 1024
"""Most iterations of one staged chunk."""
SHARED_BYTES, SHARED_STEPS = 2 << 20, 64
"""The same where a loop may run one iteration now and many the next time."""
OPEN_ENDED_STEPS = 16
"""Iterations of a chunk for a data-dependent loop, whose trip count is unknown."""
ALIGNMENT = 64
"""Bytes at whose multiples memory begins that JAX on CPU and TensorFlow use without a copy."""


@dataclasses.dataclass(frozen=True)
class Staged:
    """Chunk of staged elements.

    Attributes:
        arrays: one array for each tensor of an element, `[capacity, *shape]`, or `[capacity, replicas, *shape]`;
            undefined from `count` on.
        count: for how many steps they hold elements.
        error: what ended the source, if it ended before the chunk was full.
    """

    arrays: tuple[np.ndarray, ...]
    count: int
    error: BaseException | None = None


def chunk_capacity(size: int, wanted: int | None, replicas: int = 1, shared: bool = False) -> int:
    """Computes the capacity of a chunk in iterations.

    Args:
        size: bytes of all tensors that one iteration dequeues or enqueues.
        wanted: iterations of the loop; None if unknown.
        replicas: the number of replicas.
        shared: whether loops of one iteration share executables with those of several; then it does not depend on
            `wanted`, and is within `SHARED_BYTES` and `SHARED_STEPS`.

    Returns:
        A power of two, so that loops of different lengths share executables; within `CHUNK_BYTES` unless one
        iteration alone is larger.
    """
    steps, space = (SHARED_STEPS, SHARED_BYTES) if shared else (CHUNK_STEPS, CHUNK_BYTES)
    most = min(steps, max(1, space // max(1, replicas * size)))
    wanted = steps if shared else OPEN_ENDED_STEPS if wanted is None else max(1, wanted)
    return min(1 << (most.bit_length() - 1), 1 << (wanted - 1).bit_length())


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Allocates an uninitialised array, aligned so that JAX on CPU uses its memory without a copy."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def stage_buffers(types: Types, capacity: int, replicas: Replicas) -> tuple[np.ndarray, ...]:
    """Allocates staging buffers for `capacity` elements of these types, for each replica."""
    return tuple(aligned_empty((capacity, *replicas.with_axis(t.shape)), np.dtype(t.dtype)) for t in types)
