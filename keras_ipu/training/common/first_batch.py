"""`FirstBatch`: what instances compare of a `fit`, so that each trains on data of its own, and on as much of it.

lengths of the data ─► agree, before the first step      first batch ─► compare, after the first execution
                               │                                             │
                         EmulationError                    a warning, or an error for `AutoShardPolicy.DATA`
"""

from __future__ import annotations

import itertools
import logging
import weakref
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf import distributed
from ipu_tf._loops.array_feed import ArrayFeed
from ipu_tf._state.registry import register_state
from ipu_tf._training.replication import EQUAL_DATA, instance_index
from ipu_tf.emulation import EmulationError
from keras_ipu.resume.data_position import checksum_of

_log = logging.getLogger("ipu_tf")
_compared: weakref.WeakSet[Any] = register_state("models whose data all instances have compared", weakref.WeakSet())
_NUMBERS = ("number of epochs", "number of steps in an epoch", "number of batches")
_LENGTHS = ("`run_eagerly`", "`steps_per_execution`", *_NUMBERS)
_UNKNOWN = -1
_LITTLE, _CONSTANT = 40, 200
"""A batch that is compressed to fewer bytes, or to one of so many, may be equal by chance: small numbers, constants."""


class FirstBatch:
    """What the instances compare of a `fit`: the lengths of its data before, the first batch after the first execution.

    Args:
        model: that is trained.
        by_data: whether the data are sharded by `AutoShardPolicy.DATA`: then the first of all batches is compared,
            which has to be the same.
        quiet: whether the program says by `AutoShardPolicy.OFF` that it gives each instance what it wants.
        epochs: how many are trained.
    """

    def __init__(self, model: Any, by_data: bool, quiet: bool, epochs: int = 1) -> None:
        self._model = model
        self._by_data = by_data
        self._wanted = not quiet
        self._epochs = epochs
        self._arrays: list[np.ndarray] = []
        self._seen = False
        self._claimed = False
        self._taken, self._steps = 0, 1

    def claim(self) -> bool:
        """Returns whether it is claimed for the first time."""
        first, self._claimed = not self._claimed, True
        return first

    def agree(self, iterator: Any, eagerly: bool) -> None:
        """Compares with the other instances how many steps an epoch iterator has; all have to ask.

        Args:
            iterator: Keras's, over the data for training or for validation.
            eagerly: whether the model runs with `run_eagerly=True`.

        Raises:
            EmulationError: if a number differs, as far as it is known in all.
        """
        wanted, batches = iterator.steps_per_epoch, iterator._num_batches
        self._steps = iterator.steps_per_execution
        steps = wanted if wanted is not None else batches
        total = None if batches is None or wanted is None else min(batches, wanted * self._epochs)
        own = [int(eagerly), iterator.steps_per_execution, self._epochs, steps, total]
        known = np.array([_UNKNOWN if each is None else each for each in own], np.int64)
        for name, given in zip(_LENGTHS, np.asarray(distributed.allgather(known, tensor_name="fit")).T, strict=True):
            if len(set(given) - {_UNKNOWN}) > 1:
                texts = [f"{'unknown' if each == _UNKNOWN else each} in instance {i}" for i, each in enumerate(given)]
                raise EmulationError(
                    f"`fit` of {self._model.name} needs the same {name} in all {len(given)} instances. "
                    f"Received: {', '.join(texts)}.{f' {EQUAL_DATA}' * (name in _NUMBERS)}"
                )

    def note(self, arrays: Sequence[np.ndarray]) -> None:
        """Takes the arrays of the first batch, or of all samples, which are kept until they are compared."""
        if not self._seen:
            self._seen, self._arrays = True, [array for array in arrays if array.dtype != object]

    def agreed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Returns the batches of the next execution of a model that runs eagerly.

        Args:
            batches: gives those that are left.

        Raises:
            EmulationError: if the instances do not have as many.
            StopIteration: if none is left.
        """
        taken = list(itertools.islice(batches, self._steps))
        own = np.array([len(taken), self._taken], np.int64)
        rows = np.asarray(distributed.allgather(own, tensor_name="step of fit"))
        if len(set(map(tuple, rows))) > 1:
            texts = [
                f"instance {index} has {count + before}{' or more' if count == self._steps else ''}"
                for index, (count, before) in enumerate(rows)
            ]
            raise EmulationError(
                f"The data of `fit` of {self._model.name} must have the same number of batches in all {len(rows)} "
                f"instances. Received: {', '.join(texts)}. {EQUAL_DATA}"
            )
        if not taken:
            raise StopIteration
        self._taken += len(taken)
        self.note([np.asarray(leaf) for leaf in tf.nest.flatten(taken[0]) if leaf is not None])
        return iter(taken)

    def watch(self, elements: Any) -> None:
        """Takes the first batch from an epoch's `ElementIterator`; of arrays, all samples in their own order."""
        elements.first_batch = self
        if self._by_data:
            return
        feed = elements.tracked_feed
        if isinstance(feed, ArrayFeed):
            self.note(feed.samples)
            return
        before = feed.on_read

        def read(arrays: Sequence[np.ndarray]) -> None:
            feed.on_read = before
            self.note(arrays)
            before(arrays)

        feed.on_read = read

    def compare(self) -> None:
        """Compares the instances' first batches, once for each model; all have to ask, after their first execution.

        Raises:
            EmulationError: if they read data that are sharded by `AutoShardPolicy.DATA` in different orders.
        """
        if not self._wanted or self._model in _compared:
            self._arrays = []
            return
        _compared.add(self._model)
        all_of_them = self._checksums(checksum_of(self._arrays, len(self._arrays) + 1))
        same = [index for index, each in enumerate(all_of_them) if each == all_of_them[0]]
        if self._by_data and len(same) < len(all_of_them):
            raise EmulationError(
                f"AutoShardPolicy.DATA needs the same batches in the same order in all {len(all_of_them)} instances. "
                f"Received: another first batch in some than in instance 0. Is `shuffle(seed=...)` seeded, or "
                "`keras.utils.set_random_seed(...)` called, with the same seed in all?"
            )
        if not self._by_data and _most_common(all_of_them):  # pieces of large arrays are equal: are the whole arrays?
            equal = _most_common(self._checksums(_whole_checksum(self._arrays)))
            if equal and instance_index() == 0:
                _warn(self._model.name, equal)
        self._arrays = []

    def _checksums(self, own: int) -> np.ndarray:
        """Returns the checksums of all instances."""
        return np.asarray(distributed.allgather(np.int64(own), tensor_name="first batch of fit"))


def _whole_checksum(arrays: Sequence[np.ndarray]) -> int:
    """Returns a checksum of all bytes; one of its own for each instance where arrays may be equal by chance."""
    parts = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays]
    beginning = b"".join(part[: 1 << 16] for part in parts)
    if len(zlib.compress(beginning)) < max(_LITTLE, len(beginning) // _CONSTANT):
        return -1 - instance_index()
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


def _most_common(checksums: np.ndarray) -> list[int]:
    """Returns the instances that have the most common checksum; none if each has its own."""
    counts = [int((checksums == each).sum()) for each in checksums]
    if max(counts) == 1:
        return []
    return [int(index) for index in np.flatnonzero(checksums == checksums[int(np.argmax(counts))])]


def _warn(name: str, instances: Sequence[int]) -> None:
    _log.warning(
        "ipu_tf: %s: instances %s train on the same data: the first batches are equal. Nothing is sharded by itself. "
        "Give each its own: `dataset.shard(popdist.getNumInstances(), popdist.getInstanceIndex())`, or "
        "`options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA`; `OFF` says "
        "that it is meant.",
        name,
        ", ".join(map(str, instances)),
    )
