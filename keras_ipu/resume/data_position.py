"""`DataPosition`: the position of a run in its data, and checksums of batches."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ipu_tf._checkpoints.checkpoint_folder import CheckpointError

_PIECE, _PIECES = 4096, 16


@dataclasses.dataclass(frozen=True)
class DataPosition:
    """Position of a run in its data, between two executions.

    Attributes:
        epoch: the epoch, from 0.
        step: steps of it that ran.
        before: steps that the open iterator gave in earlier epochs.
        opened: iterators that were opened before the one at hand.
        batches: batches that were taken from it.
        length: steps of an epoch, where Keras has found out by now.
        checksum: of these batches, or of the order of the samples.
        random: `host_random_state()` when the first batch was read; None where none was.
        last_read: the number of the last iterator of which a batch was read, from 1, and a checksum of its first one.
    """

    epoch: int
    step: int = 0
    before: int = 0
    opened: int = 0
    batches: int = 0
    length: int | None = None
    checksum: int = 0
    random: Any = None
    last_read: tuple[int, int] = (0, 0)


def other_data(batches: int) -> CheckpointError:
    """Returns the error for data of which the first batches are not those that the run has trained on."""
    return CheckpointError(
        f"The data must be those that the run has trained on, in the same order. Received: others among the first "
        f"{batches} batches. Are all sources of randomness seeded, such as `shuffle(seed=...)` and random numbers in "
        "`map`? To train from the beginning, remove the folder of the checkpoints."
    )


def checksum_of(arrays: Sequence[np.ndarray], start: int) -> int:
    """Returns a checksum of arrays: of all of a small one, and of some pieces of a large one."""
    for array in arrays:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if data.size <= _PIECE * _PIECES:
            start = zlib.crc32(data.data, start)
            continue
        for first in np.linspace(0, data.size - _PIECE, _PIECES, dtype=np.int64):
            start = zlib.crc32(data[first : first + _PIECE].data, start)
    return start
