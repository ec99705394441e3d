"""Data of `fit` in several instances: sharded as their options say; what all instances read by mistake is told.

fit(dataset) ─► sharded ─► this instance's batches ─► feed ─► first execution ─► compare
                   └──── checksum of the first batch ───┘
"""

from __future__ import annotations

import contextvars
import logging
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf import distributed
from ipu_tf._loops.array_feed import ArrayFeed
from ipu_tf._state.registry import register_state
from ipu_tf._strategy.auto_shard import is_sharded_by_data, sharded
from ipu_tf._training.replication import instance_count, instance_index
from ipu_tf.emulation import EmulationError
from keras_ipu.resume.data_position import checksum_of

_log = logging.getLogger("ipu_tf")
_compared: weakref.WeakSet[Any] = register_state("models whose data all instances have compared", weakref.WeakSet())


class FirstBatch:
    """First batch that a `fit` trains on, which the instances compare after the first execution.

    Args:
        model: that is trained.
        by_data: whether the data are sharded by `AutoShardPolicy.DATA`: then the first of all batches is compared,
            which has to be the same.
        quiet: whether the program says by `AutoShardPolicy.OFF` that it gives each instance what it wants.
    """

    def __init__(self, model: Any, by_data: bool, quiet: bool) -> None:
        self._model = model
        self._by_data = by_data
        self._wanted = not quiet
        self._checksum = 0
        self._claimed = False

    def claim(self) -> bool:
        """Returns whether it is claimed for the first time."""
        first, self._claimed = not self._claimed, True
        return first

    def note(self, arrays: Sequence[np.ndarray]) -> None:
        """Takes the arrays of the first batch."""
        self._checksum = checksum_of([array for array in arrays if array.dtype != object], len(arrays) + 1)

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
            return
        _compared.add(self._model)
        all_of_them = np.asarray(distributed.allgather(np.int64(self._checksum), tensor_name="first batch of fit"))
        same = [index for index, each in enumerate(all_of_them) if each == all_of_them[0]]
        if self._by_data and len(same) < len(all_of_them):
            raise EmulationError(
                f"AutoShardPolicy.DATA needs the same batches in the same order in all {len(all_of_them)} instances. "
                f"Received: another first batch in some than in instance 0. Is `shuffle(seed=...)` seeded, or "
                "`keras.utils.set_random_seed(...)` called, with the same seed in all?"
            )
        counts = [int((all_of_them == each).sum()) for each in all_of_them]
        if not self._by_data and max(counts) > 1 and instance_index() == 0:
            each = all_of_them[int(np.argmax(counts))]
            _warn(self._model.name, [int(index) for index in np.flatnonzero(all_of_them == each)])


def _warn(name: str, instances: Sequence[int]) -> None:
    _log.warning(
        "ipu_tf: %s: instances %s train on the same data: the first batches are equal. Nothing is sharded by itself. "
        "Give each its own: `dataset.shard(popdist.getNumInstances(), popdist.getInstanceIndex())`, or "
        "`options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA`; `OFF` says "
        "that it is meant.",
        name,
        ", ".join(map(str, instances)),
    )


current_first_batch: contextvars.ContextVar[FirstBatch | None] = contextvars.ContextVar("ipu_first_batch", default=None)
"""That of this thread's `fit`, for the iterator over its training data."""


def take_first_batch() -> FirstBatch | None:
    """Returns that of this thread's `fit`, once: for its training data, of which the iterator is made first."""
    first = current_first_batch.get()
    return first if first is not None and first.claim() else None


def share_data(method: str, model: Any, arguments: dict[str, Any], replicas: int) -> FirstBatch | None:
    """Changes the data of `fit`, `evaluate` or `predict`, by name, to this instance's share, as their options say.

    Args:
        method: which of them.
        model: whose method it is.
        arguments: of the method, by name.
        replicas: how many batches a step takes in this instance.

    Returns:
        What the instances are to compare; None if nothing.

    Raises:
        ValueError: as `sharded` says.
    """
    if instance_count() == 1:
        return None
    x = arguments.get("x")
    first = FirstBatch(model, is_sharded_by_data(x), _is_off(x)) if method == "fit" else None
    for name in ("x", "validation_data"):
        data = arguments.get(name)
        if isinstance(data, tf.data.Dataset):
            told = first.note if first is not None and name == "x" else lambda arrays: None
            arguments[name] = sharded(data, replicas, told)
    return first


def _is_off(data: Any) -> bool:
    policy = tf.data.experimental.AutoShardPolicy.OFF
    return isinstance(data, tf.data.Dataset) and data.options().experimental_distribute.auto_shard_policy == policy
